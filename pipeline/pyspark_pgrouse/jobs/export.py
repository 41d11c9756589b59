"""`pgrouse pipeline export`: the archive becomes a lake of Parquet files."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import click

from pgrouse.cli.command import CliSession, Command
from pgrouse.cli.param_types import DURATION, TIMESTAMP
from pgrouse.cli.progress_bar import ProgressBar
from pgrouse.errors import ExitCode
from pgrouse.format import plural
from pyspark_pgrouse.connection import connect
from pyspark_pgrouse.executors import on_executors
from pyspark_pgrouse.java import java_home
from pyspark_pgrouse.jobs.program import main, spark_options
from pyspark_pgrouse.lake import compaction
from pyspark_pgrouse.lake.cursor import forget, held
from pyspark_pgrouse.lake.export import Export, ExportOptions
from pyspark_pgrouse.lake.lake import Lake
from pyspark_pgrouse.lake.manifest import Manifest
from pyspark_pgrouse.position import watermark_lag
from pyspark_pgrouse.session import session as spark_session

TODAY = "SELECT (pg_catalog.clock_timestamp() AT TIME ZONE 'UTC')::date"


@dataclass(frozen=True)
class PostExport:
    """What is done after the batches. compact: merge small files; keep_replaced: how long the merged ones stay."""

    compact: bool
    keep_replaced: timedelta


def _names(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",")) if value else ()
    if "" in names:
        raise click.BadParameter(f"expected topics with commas between them, found {value!r}")
    return names


@click.command(cls=Command)
@click.argument("lake", required=False)
@click.option("--name", default="default", show_default=True, help="The name of the export; each lake has its own.")
@click.option(
    "--topics",
    callback=_names,
    help="Only these topics, separated by commas. Set by the first export; it cannot be changed later.",
)
@click.option(
    "--since",
    type=TIMESTAMP,
    help="Only messages that ended at or after this time. Set by the first export; it cannot be changed later.",
)
@click.option(
    "--delta",
    "with_delta",
    is_flag=True,
    help="Keep a Delta table over the same files. Set by the first export; it cannot be changed later.",
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
@click.option("--compact", is_flag=True, help="Afterwards, merge the small files of past days.")
@click.option(
    "--keep-replaced",
    type=DURATION,
    default="1d",
    show_default=True,
    help="How long replaced files are kept for programs that still read them.",
)
@click.option("--forget", "forgotten", metavar="NAME", help="Delete an export: the retention no longer waits for it.")
@spark_options
@click.pass_obj
def export(
    session: CliSession,
    lake: str | None,
    name: str,
    topics: tuple[str, ...],
    since: datetime | None,
    with_delta: bool,
    batch_rows: int,
    partitions: int | None,
    interval: timedelta | None,
    compact: bool,
    keep_replaced: timedelta,
    forgotten: str | None,
    master: str | None,
    conf: dict[str, str],
) -> int:
    """Write the archive to LAKE, a directory or a URL like s3a://bucket/lake, as Parquet files by date and topic.

    Each row is written exactly once, even if a process is killed. The next run writes the rows that were added since. While the export
    exists, the retention drops no row that was not exported.
    """
    dsn = session.config.database.dsn
    if forgotten is not None:
        return _forget(session, dsn, forgotten)
    if lake is None:
        raise click.UsageError("name the lake: a directory, or a URL like s3a://bucket/lake")
    options = ExportOptions(name, batch_rows, topics, since, with_delta)
    post_export = PostExport(compact, keep_replaced)
    java_home()
    if with_delta:
        _delta_follower()
    with ExitStack() as scope:
        conn = scope.enter_context(connect(dsn))
        scope.enter_context(held(conn, name))
        # Problems of the lake or the database are reported before Spark takes its time to start.
        work = Export.begin(conn, dsn, lake, options)
        spark = scope.enter_context(spark_session("export", master, conf))
        at_once = partitions or spark.sparkContext.defaultParallelism
        ExportRunner(session, work, at_once, partial(on_executors, spark), post_export).run(interval)
    return ExitCode.OK


def _delta_follower() -> Callable[[Lake], int]:
    """Return what brings the Delta table of a lake up to date.

    Raises:
        ConfigError: deltalake is not installed.
    """
    from pyspark_pgrouse.lake.delta import follow  # noqa: PLC0415 - extra delta

    return follow


def _forget(session: CliSession, dsn: str | None, name: str) -> int:
    with connect(dsn) as conn:
        forget(conn, name)
    if session.as_json:
        session.output.record({"forgotten": name})
    session.output.say(f"deleted export {name}: the retention no longer waits for it")
    return ExitCode.OK


@dataclass
class ExportRunner:
    """Runs an export, and reports what it did."""

    session: CliSession
    work: Export
    partitions: int
    run_parts: Callable[..., Any]
    post_export: PostExport

    def run(self, interval: timedelta | None) -> None:
        """Export what there is; with `interval` again and again, until interrupted."""
        self._run_once()
        while interval is not None:
            time.sleep(interval.total_seconds())
            self._run_once()

    def _run_once(self) -> None:
        began = time.monotonic()
        written = list(self._batches())
        merged = self._compact() if self.post_export.compact else 0
        self._report(written, merged, time.monotonic() - began)

    def _batches(self) -> Iterator[Manifest]:
        with _progress(self.session, self.work) as report:
            for manifest in self.work.batches(self.run_parts, self.partitions):
                self._update_delta()
                report(manifest)
                yield manifest

    def _compact(self) -> int:
        lake = self.work.lake
        row: Any = self.work.conn.execute(TODAY).fetchone()
        merged = compaction.compact(lake, self.run_parts, row[0])
        self._update_delta()
        compaction.expire(lake, self.post_export.keep_replaced)
        return merged

    def _update_delta(self) -> None:
        if self.work.lake.info.delta:
            _delta_follower()(self.work.lake)

    def _report(self, written: list[Manifest], merged: int, seconds: float) -> None:
        rows, files = sum(m.rows for m in written), sum(len(m.add) for m in written)
        lag, waiting = watermark_lag(self.work.conn), self.work.rows_waiting()
        output = self.session.output
        if self.session.as_json:
            output.record(
                {
                    "lake": self.work.lake.directory.url,
                    "name": self.work.options.name,
                    "batches": len(written),
                    "rows": rows,
                    "rows_waiting": waiting,
                    "files": files,
                    "bytes": sum(f.bytes for m in written for f in m.add),
                    "merged_files": merged,
                    "seconds": round(seconds, 3),
                    "position": self.work.cursor.position.as_offset(),
                    "watermark_lag": asdict(lag),
                }
            )
        rate = f", {rows / seconds:,.0f} a second" if rows else ""
        output.say(f"wrote {plural(rows, 'row')} in {plural(files, 'file')} to {self.work.lake.directory.url}{rate}")
        if merged:
            output.say(f"merged {plural(merged, 'small file')}")
        if waiting:
            output.say(f"{plural(waiting, 'row')} {'waits' if waiting == 1 else 'wait'} for a later run: {lag}")


@contextmanager
def _progress(session: CliSession, work: Export) -> Iterator[Callable[[Manifest], None]]:
    """Show how far it is: a bar on a terminal, else a line for each batch."""
    if not sys.stderr.isatty():
        yield lambda m: session.output.note(
            f"batch {m.number}: {plural(m.rows, 'row')} in {plural(len(m.add), 'file')}"
        )
        return
    with ProgressBar("exporting", work.rows_left()) as bar:
        yield lambda m: bar.advance(m.rows)


if __name__ == "__main__":
    main(export)
