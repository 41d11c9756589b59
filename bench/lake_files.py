"""Measures what small files cost: a lake by date and topic beside one by date, over topics and over commits.

An export without Spark writes each lake; the more often an export runs, the more commits have its rows. Then pyarrow
reads one topic.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.figure import Figure, Report
from bench.postgres import Database, Postgres
from bench.spark_export import archive
from bench.usage import Machine


def measure(postgres: Postgres, machine: Machine, rows: int, shapes: Sequence[tuple[int, int]]) -> Report:
    """Export an archive of this many rows once for each number of topics and of commits, in each way."""
    report = Report("lake-files", f"{rows:,} archived rows of about 300 bytes, exported and read by one process.")
    for topics, commits in shapes:
        with archive(postgres, rows, topics) as database, tempfile.TemporaryDirectory() as folder:
            _figures(database, Path(folder, "warm"), ("date",), rows)  # the first export imports packages
            machine.wait_until_quiet()
            by_date = _figures(database, Path(folder), ("date",), rows // commits)
            by_topic = _figures(database, Path(folder), ("date", "topic"), rows // commits)
        shape = f"{topics:,} topics, {commits} commits"
        for (what, unit, value), (_, _, least) in zip(by_topic, by_date, strict=True):
            limit = Figure(f"by date, {shape}: {what}", unit, [least])
            report.figures += [Figure(f"by date and topic, {shape}: {what}", unit, [value], limit), limit]
    return report


def _figures(
    database: Database, folder: Path, partition_by: tuple[str, ...], batch_rows: int
) -> list[tuple[str, str, float]]:
    lake = folder / "-".join(partition_by)
    exporting = _cpu_s(lambda: _export(database, lake, partition_by, batch_rows))
    reading = _cpu_s(lambda: _read(lake))
    sizes = [file.stat().st_size for file in lake.glob("date=*/**/*.parquet")]
    return [
        ("files", "", len(sizes)),
        ("size", "MB", sum(sizes) / 1e6),
        ("CPU of the export", "s", exporting),
        ("CPU of a query of one topic", "s", reading),
    ]


def _cpu_s(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _export(database: Database, lake: Path, partition_by: tuple[str, ...], batch_rows: int) -> None:
    from pyspark_pgrouse.connection.connection import connect  # noqa: PLC0415 - the other benchmarks do without the lake
    from pyspark_pgrouse.lake.export import Export, ExportOptions  # noqa: PLC0415

    options = ExportOptions(batch_rows=batch_rows, partition_by=partition_by)
    with connect(database.dsn) as conn:
        export = Export.begin(conn, database.dsn, str(lake), options)
        for _ in export.batches(lambda work, parts: [work(part) for part in parts], 1):
            pass
        conn.execute("SELECT messages.delete_export('default')")


def _read(lake: Path) -> None:
    import pyarrow.dataset as ds  # noqa: PLC0415
    from deltalake import DeltaTable  # noqa: PLC0415

    found = DeltaTable(lake).to_pyarrow_dataset().to_table(columns=["id"], filter=ds.field("topic") == "topic.3")
    assert found.num_rows
