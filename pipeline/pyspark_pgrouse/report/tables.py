"""The tables of a report: DuckDB reads the archive once, and makes each table by a statement of the folder sql/."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import duckdb

from pgrouse.errors import ExitCode, PgrouseError
from pyspark_pgrouse.report.slo import Slo
from pyspark_pgrouse.report.window import Window

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

NAMES = (
    "throughput",
    "failures",
    "latency",
    "latency_by_topic",
    "changes",
    "cost",
    "weeks",
    "fingerprints",
    "fingerprint_trend",
    "retries",
    "channels",
    "skew",
    "capacity",
    "slo",
    "slo_weeks",
)
# Intermediate tables, which are not written; and a view that only the page needs.
INTERMEDIATE = ("attempt", "percentile")
VIEW = "comparison"
# Above this, DuckDB uses the disk for sorting and counting. A thread needs about 100 MB for that.
MEMORY = "1GB"
MOST_THREADS = 4


class ReportFailed(PgrouseError):
    """The tables could not be created, for a reason outside of them."""

    exit_code = ExitCode.TRY_AGAIN


class Tables:
    """The tables of one report, in their own database."""

    def __init__(self, db: duckdb.DuckDBPyConnection) -> None:
        self._db = db

    @classmethod
    @contextmanager
    def open(cls, folder: Path) -> Iterator[Tables]:
        """Create the database, in a folder that is removed afterwards.

        Raises:
            ReportFailed: for example, the disk is full.
        """
        try:
            with duckdb.connect(folder / "report.duckdb", config=_config(folder)) as db:
                # A bar on the standard output would be in the middle of the command's result.
                db.execute("SET TimeZone = 'UTC'; SET enable_progress_bar_print = false")
                yield cls(db)
        except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
            raise ReportFailed(
                f"the report could not be made: {_first_line(error)}: free space for its temporary files "
                f"in {folder.parent}, "
                "or name another folder by TMPDIR"
            ) from error

    def load(self, archive: pa.RecordBatchReader, window: Window) -> None:
        """Read archived messages, once.

        Args:
            archive: rows with the columns of `source.COLUMNS`. Rows outside the time that the window reads are left
                out.
            window: the window of the report.

        Raises:
            ReportFailed: the source could not be read to its end.
        """
        self._set(_moments(window) | _weeks(window))
        self._db.register("archive", archive)
        self._run("macros")
        try:
            self._run("ended")
        except duckdb.InvalidInputException as error:  # an error of the source, while DuckDB waited for the next rows
            raise ReportFailed(
                f"the archive could not be read to its end: {_first_line(error)}: run the report again"
            ) from error
        self._db.unregister("archive")

    def span(self) -> tuple[int, datetime | None, datetime | None]:
        """Return how many messages were read, and when the first and the last message in the report ended."""
        (row,) = self.rows(
            "SELECT count(*) AS read, min(archived_us) FILTER (WHERE is_shown) "
            "AS first, max(archived_us) FILTER (WHERE is_shown) AS last FROM ended"
        )
        return row["read"], _datetime(row["first"]), _datetime(row["last"])

    def make(self, window: Window, slos: Sequence[Slo], began: Callable[[str], None]) -> None:
        """Create all tables. Tables that were not requested are empty.

        Args:
            window: the times that are shown and compared.
            slos: the service level objectives.
            began: called with the name of each table.
        """
        lengths = {"bucket": window.bucket_s, "step": window.step_s, "shown": window.seconds}
        self._set(_moments(window) | {f"{name}_us": round(seconds * 1_000_000) for name, seconds in lengths.items()})
        self._set({"before_s": window.before_s, "after_s": window.after_s})
        self._objectives(slos)
        for name in (*INTERMEDIATE, *NAMES):
            if name in NAMES:
                began(name)
            self._run(name)
        self._run(VIEW)

    def rows(self, query: str, **parameters: Any) -> list[dict[str, Any]]:
        """Run a query; return its rows by the names of its columns."""
        result = self._db.execute(query, parameters)
        names = [column[0] for column in result.description or ()]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    def write(self, folder: Path) -> None:
        """Write each table as a Parquet file."""
        for name in NAMES:
            self._db.execute(f"COPY {name} TO $path (FORMAT parquet)", {"path": str(folder / f"{name}.parquet")})

    def _set(self, variables: Mapping[str, float]) -> None:
        for name, value in variables.items():
            self._db.execute(f"SET VARIABLE {name} = $value", {"value": value})

    def _objectives(self, slos: Sequence[Slo]) -> None:
        self._db.execute("CREATE TABLE objective (name VARCHAR, topic VARCHAR, within_us BIGINT)")
        for slo in slos:
            self._db.execute("INSERT INTO objective VALUES (?, ?, ?)", [slo.name, slo.topic, _us(slo.within)])

    def _run(self, name: str) -> None:
        self._db.execute(files("pyspark_pgrouse.report").joinpath(f"sql/{name}.sql").read_text(encoding="utf-8"))


def _config(folder: Path) -> dict[str, Any]:
    return {
        "memory_limit": MEMORY,
        "temp_directory": str(folder),
        "threads": min(MOST_THREADS, os.cpu_count() or 1),
        "preserve_insertion_order": False,
        # Nothing is loaded from a network.
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }


def _moments(window: Window) -> dict[str, float]:
    return {
        "first_us": epoch_us(window.first),
        "since_us": epoch_us(window.since),
        "until_us": epoch_us(window.until),
        "mark_us": epoch_us(window.mark) if window.mark else 0,
        "is_compared": window.mark is not None,
    }


def _weeks(window: Window) -> dict[str, float]:
    starts = window.weeks()
    return {
        "weeks_since_us": epoch_us(starts[0] if starts else window.until),
        "weeks_until_us": epoch_us(window.until),
    }


def epoch_us(moment: datetime) -> int:
    """Return the microseconds since 1970."""
    return _us(moment - datetime.fromtimestamp(0, UTC))


def _us(time: timedelta) -> int:
    return time // timedelta(microseconds=1)


def _datetime(us: int | None) -> datetime | None:
    return None if us is None else datetime.fromtimestamp(0, UTC) + timedelta(microseconds=us)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
