"""`pgrouse pipeline export`: writes the archive to a lake, a Delta table."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from pgrouse.errors import ExitCode
from pgrouse.terminal.command import CliSession, Command
from pgrouse.terminal.param_types import DURATION, NAMES, TIMESTAMP
from pgrouse.terminal.progress_bar import ProgressBar
from pgrouse.values.format import plural
from pyspark_pgrouse.connection.connection import connect
from pyspark_pgrouse.connection.queue_dsn import dsn_of
from pyspark_pgrouse.executors import on_executors
from pyspark_pgrouse.java import java_home
from pyspark_pgrouse.jobs.export_lag import check_lag, export_lag, max_lag_option
from pyspark_pgrouse.jobs.job_options import spark_options
from pyspark_pgrouse.jobs.run_metrics import RunReport, record_run
from pyspark_pgrouse.lake.catalog import register
from pyspark_pgrouse.lake.columns import PARTITIONINGS, ColumnChoice
from pyspark_pgrouse.lake.cursor import forget, held
from pyspark_pgrouse.lake.export import Export, ExportCommit, ExportOptions
from pyspark_pgrouse.lake.maintenance import delete_before, optimize, vacuum
from pyspark_pgrouse.read.position import watermark_lag
from pyspark_pgrouse.session import session as spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_pgrouse.lake.lake import Lake

# A day has been over for this long if the next day began at least this long ago.
OLDEST_DAY = "SELECT ((pg_catalog.clock_timestamp() - %s::interval) AT TIME ZONE 'UTC')::date"
FIXED = "Set by the first export; it cannot be changed later."
MAINTENANCE_DONE = {"deleted_files": "deleted {} of old days", "merged_files": "merged {}"}


@dataclass(frozen=True)
class Maintenance:
    """The maintenance of the lake after the batches.

    Attributes:
        optimize: merge small files.
        retention: delete days that ended this long ago; None = keep all.
        vacuum: remove files that were replaced or deleted this long ago; None = keep them.
    """

    optimize: bool = False
    retention: timedelta | None = None
    vacuum: timedelta | None = None

    def run(self, work: Export) -> dict[str, int]:
        """Do it; return how many files were deleted and merged."""
        lake, done = work.lake, {}
        if self.retention is not None:
            row: Any = work.conn.execute(OLDEST_DAY, [self.retention]).fetchone()
            done["deleted_files"] = delete_before(lake, row[0])
        if self.optimize:
            done["merged_files"] = optimize(lake)
        if self.vacuum is not None:
            vacuum(lake, self.vacuum)
        return done


def _fixed_names(option: str, meaning: str) -> Callable[..., Any]:
    """Return an option with names, which the first export of a lake sets."""
    return click.option(option, metavar="A,B", type=NAMES, default=(), help=f"{meaning} {FIXED}")


@click.command(cls=Command)
@click.argument("lake", required=False)
@click.option("--name", default="default", show_default=True, help="The name of the export; each lake has its own.")
@_fixed_names("--topics", "Only these topics, separated by commas.")
@click.option("--since", type=TIMESTAMP, help=f"Only messages that ended at or after this time. {FIXED}")
@_fixed_names("--columns", "Only these columns, in addition to id, topic, archived_at and archive_xid.")
@_fixed_names("--exclude", "Not these columns, as payload,body.")
@_fixed_names("--mask", "Of these columns only the SHA-256 of their values.")
@click.option(
    "--partition-by",
    type=click.Choice([",".join(each) for each in PARTITIONINGS]),
    help="How the files are divided: date,topic for queries of one topic; date, with rows sorted by topic, for many "
    f"topics. Default: date,topic up to 20 topics. {FIXED}",
)
@click.option(
    "--batch-rows",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="The maximum number of rows of one commit.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1, 9999),
    help="The number of tasks into which a batch is split. Default: the number that Spark runs at a time.",
)
@click.option("--interval", type=DURATION, help="Repeat until interrupted, and look for new rows after this time.")
@click.option("--optimize", is_flag=True, help="Afterwards, merge small files.")
@click.option(
    "--retention",
    type=DURATION,
    help="Afterwards, delete the days that ended this long ago, as 90d. Default: keep all days.",
)
@click.option(
    "--vacuum",
    type=DURATION,
    help="Afterwards, remove files that the table has not used for this long, as 7d. "
    "Programs that still read them fail. Default: keep them.",
)
@click.option(
    "--forget",
    "forgotten",
    metavar="NAME",
    help="Do not export; delete this export instead. The retention no longer waits for it.",
)
@click.option(
    "--table",
    metavar="[CATALOG.][SCHEMA.]NAME",
    help="Afterwards, register the lake as this table in a catalog of the Spark session, with the comments of its "
    "columns.",
)
@max_lag_option
@spark_options
@click.pass_obj
def export(
    session: CliSession,
    lake: str | None,
    name: str,
    topics: tuple[str, ...],
    since: datetime | None,
    columns: tuple[str, ...],
    exclude: tuple[str, ...],
    mask: tuple[str, ...],
    partition_by: str | None,
    batch_rows: int,
    partitions: int | None,
    interval: timedelta | None,
    optimize: bool,
    retention: timedelta | None,
    vacuum: timedelta | None,
    forgotten: str | None,
    table: str | None,
    max_lag: timedelta | None,
    master: str | None,
    conf: dict[str, str],
) -> int:
    """Write the archive to LAKE, a directory or a URL like s3a://bucket/lake, a Delta table.

    Each row is written exactly once, even if a process is killed. The next run writes the rows that were added since.
    While the export exists, the retention drops no row that was not exported.
    """
    dsn = dsn_of(session.config.database)
    if forgotten is not None:
        return _forget(session, dsn, forgotten)
    if lake is None:
        raise click.UsageError("name the lake: a directory, or a URL like s3a://bucket/lake")
    by = tuple(partition_by.split(",")) if partition_by else None
    options = ExportOptions(name, batch_rows, topics, since, ColumnChoice(columns, exclude, mask), by)
    maintenance = Maintenance(optimize, retention, vacuum)
    java_home()
    with ExitStack() as scope:
        conn = scope.enter_context(connect(dsn))
        scope.enter_context(held(conn, name))
        # Problems of the lake or the database are reported before Spark takes its time to start.
        work = Export.begin(conn, dsn, lake, options)
        spark = scope.enter_context(spark_session("export", master, conf))
        at_once = partitions or spark.sparkContext.defaultParallelism
        runner = ExportRunner(session, work, at_once, partial(on_executors, spark), maintenance, max_lag)
        if table is not None:
            runner.register = partial(_register, session, spark, work.lake, table)
        runner.run(interval)
    return ExitCode.OK


def _register(session: CliSession, spark: SparkSession, lake: Lake, table: str) -> None:
    if register(spark, lake, table):
        session.note(f"registered the lake as {table}")


def _forget(session: CliSession, dsn: str | None, name: str) -> int:
    with connect(dsn) as conn:
        forget(conn, name)
    if session.as_json:
        session.record({"forgotten": name})
    session.say(f"deleted export {name}: the retention no longer waits for it")
    return ExitCode.OK


@dataclass
class ExportRunner:
    """Runs an export, and reports its results."""

    session: CliSession
    work: Export
    partitions: int
    run_parts: Callable[..., Any]
    maintenance: Maintenance
    max_lag: timedelta | None = None
    register: Callable[[], None] | None = None

    def run(self, interval: timedelta | None) -> None:
        """Export the rows that exist; with `interval` repeat this until interrupted."""
        self._run_once()
        while interval is not None:
            time.sleep(interval.total_seconds())
            self._run_once()

    def _run_once(self) -> None:
        began = time.monotonic()
        written = list(self._batches())
        done = self.maintenance.run(self.work)
        if self.register is not None:
            self.register()
        self._report(written, done, time.monotonic() - began)

    def _batches(self) -> Iterator[ExportCommit]:
        with _progress(self.session, self.work) as report:
            for commit in self.work.batches(self.run_parts, self.partitions):
                report(commit)
                yield commit

    def _report(self, written: list[ExportCommit], done: dict[str, int], seconds: float) -> None:
        rows, files = sum(commit.rows for commit in written), sum(len(commit.files) for commit in written)
        lag = watermark_lag(self.work.conn)
        behind = export_lag(self.work.conn, self.work.cursor.position, self.work.source.scope)
        size = sum(file.bytes for commit in written for file in commit.files)
        waiting = behind.rows
        record_run(RunReport(rows, size, waiting, behind.seconds))
        output = self.session
        if self.session.as_json:
            output.record(
                {
                    "lake": self.work.lake.directory.url,
                    "name": self.work.options.name,
                    "batches": len(written),
                    "rows": rows,
                    "rows_waiting": waiting,
                    "files": files,
                    "bytes": size,
                    **dict.fromkeys(MAINTENANCE_DONE, 0) | done,
                    "seconds": round(seconds, 3),
                    "position": self.work.cursor.position.as_offset(),
                    "watermark_lag": asdict(lag),
                    "lag_seconds": round(behind.seconds, 3),
                }
            )
        rate = f", {rows / seconds:,.0f} a second" if rows else ""
        output.say(f"wrote {plural(rows, 'row')} in {plural(files, 'file')} to {self.work.lake.directory.url}{rate}")
        for step, files in done.items():
            if files:
                output.say(MAINTENANCE_DONE[step].format(plural(files, "file")))
        if waiting:
            output.say(f"{plural(waiting, 'row')} {'waits' if waiting == 1 else 'wait'} for a later run: {lag}")
        check_lag(self.work.conn, behind, self.max_lag)


@contextmanager
def _progress(session: CliSession, work: Export) -> Iterator[Callable[[ExportCommit], None]]:
    """Show the progress: a bar on a terminal, otherwise a line for each batch."""
    if not sys.stderr.isatty():
        yield lambda commit: session.note(
            f"version {commit.version}: {plural(commit.rows, 'row')} in {plural(len(commit.files), 'file')}"
        )
        return
    with ProgressBar("exporting", work.rows_left()) as bar:
        yield lambda commit: bar.advance(commit.rows)
