"""Measures how fast the archive is exported to Parquet.

It is exported by `pgrouse pipeline export`, by Spark's JDBC reader, and by one process without Spark.

All run in one warm session, in turn. The growth is measured with the export alone, over archives of different sizes.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.figure import Figure, Report, Target
from bench.postgres import Database, Postgres
from bench.spark_publish import DRIVER, Reachable
from bench.usage import Machine
from psycopg.conninfo import conninfo_to_dict

# As many tasks as run at a time, which is the default of the command; JDBC is also faster with this many than with
# twice as many.
PARTITIONS = 2
# Rows of about 300 bytes. Triggers are off: one would warn of each dead message.
FILL = """
    SET session_replication_role = replica;
    INSERT INTO messages.message_archive (
      id, topic, priority, payload, created_at, available_at, attempts, result, archived_at, handled_by)
    SELECT
      n, 'topic.' || n % {topics}, 5,
      jsonb_build_object('n', n, 'customer', md5(n::text), 'text', repeat(md5((n * 7)::text), 7)),
      now(), now(), 1, CASE WHEN n % 50 = 0 THEN 'failed' ELSE 'success' END, now(), 'worker-' || n % 8
    FROM generate_series(1, {rows}) AS n;
    RESET session_replication_role;"""


def measure(postgres: Postgres, machine: Machine, rounds: int, rows: int, growth: tuple[int, ...]) -> Report:
    """Export an archive of this many rows in each way, then archives of the sizes in `growth` once each."""
    from pyspark_pgrouse.session import session  # noqa: PLC0415 - the other benchmarks do without Spark

    if not DRIVER.exists():
        raise SystemExit(
            f"spark-export compares with JDBC, and {DRIVER} is missing: apt-get install libpostgresql-jdbc-java"
        )
    del postgres
    report = Report(
        "spark-export",
        f"{rows:,} archived rows of about 300 bytes to Parquet (zstd), in {PARTITIONS} partitions, "
        "in one warm session.",
    )
    conf = {"spark.jars": str(DRIVER), "spark.driver.memory": "3g"}
    with (
        Reachable() as reachable,
        session("bench", f"local[{PARTITIONS}]", conf) as spark,
        tempfile.TemporaryDirectory() as folder,
    ):
        with archive(reachable, rows) as database:
            report.figures += _compared(spark, database, machine, Path(folder), rounds, rows)
        report.figures += _growth(spark, reachable, machine, Path(folder), growth)
    return report


def _compared(spark: Any, database: Database, machine: Machine, folder: Path, rounds: int, rows: int) -> list[Figure]:
    ways: dict[str, Callable[[Path], None]] = {
        "pipeline export": partial(_export, spark, database),
        "one process, ADBC to pyarrow": partial(_one_process, database),
        "Spark's JDBC reader": partial(_jdbc, spark, database, rows),
    }
    for way in ways.values():
        _timed(way, folder / "warm")
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            machine.wait_until_quiet()
            speeds[name].append(rows / _timed(way, folder / "lake"))
    limits = {name: Figure(name, "rows/s", speeds[name]) for name in ways if name != "pipeline export"}
    targets = {"one process, ADBC to pyarrow": 0.9, "Spark's JDBC reader": 1.5}
    ours = speeds["pipeline export"]
    compared = [
        Figure("pipeline export", "rows/s", ours, limit, Target(targets[name], at_least=True))
        for name, limit in limits.items()
    ]
    return [*compared, *limits.values()]


def _growth(spark: Any, postgres: Postgres, machine: Machine, folder: Path, sizes: tuple[int, ...]) -> list[Figure]:
    figures: list[Figure] = []
    for size in sizes:
        with archive(postgres, size) as database:
            machine.wait_until_quiet()
            speed = size / _timed(partial(_export, spark, database), folder / "lake")
        first = figures[0] if figures else None
        target = Target(1 / 1.5, at_least=True) if first else None
        figures.append(Figure(f"pipeline export of {size:,} rows", "rows/s", [speed], first, target))
    return figures


@contextmanager
def archive(postgres: Postgres, rows: int, topics: int = 20) -> Iterator[Database]:
    """Make a database whose archive has this many rows of about 300 bytes."""
    with postgres.database("spark_export") as database:
        with database.connect() as conn:
            conn.execute(FILL.format(rows=rows, topics=topics).encode())
            conn.execute("VACUUM ANALYZE messages.message_archive")
        postgres.checkpoint()
        yield database


def _timed(way: Callable[[Path], None], target: Path) -> float:
    began = time.perf_counter()
    way(target)
    took = time.perf_counter() - began
    shutil.rmtree(target)
    return took


def _export(spark: Any, database: Database, target: Path) -> None:
    from pyspark_pgrouse.connection.connection import connect  # noqa: PLC0415
    from pyspark_pgrouse.executors import on_executors  # noqa: PLC0415
    from pyspark_pgrouse.lake.export import Export, ExportOptions  # noqa: PLC0415

    with connect(database.dsn) as conn:
        export = Export.begin(conn, database.dsn, str(target), ExportOptions())
        for _ in export.batches(partial(on_executors, spark), PARTITIONS):
            pass
        conn.execute("SELECT messages.delete_export('default')")


def _one_process(database: Database, target: Path) -> None:
    import pyarrow.parquet as pq  # noqa: PLC0415

    from pyspark_pgrouse.connection.connection import arrow, connect  # noqa: PLC0415
    from pyspark_pgrouse.lake.columns import ColumnChoice, archive_columns  # noqa: PLC0415
    from pyspark_pgrouse.lake.slice import ExportSlice, ExportSource  # noqa: PLC0415
    from pyspark_pgrouse.read.position import Position  # noqa: PLC0415

    with connect(database.dsn) as conn:
        source = ExportSource(database.dsn, archive_columns(conn, ColumnChoice()))
    everything = ExportSlice("", 0, Position("", "0", 0), Position("", str(2**62), 0))
    target.mkdir()
    batches = arrow(database.dsn, source.query(everything))
    first = next(batches)
    with pq.ParquetWriter(target / "all.parquet", first.schema, compression="zstd") as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)


def _jdbc(spark: Any, database: Database, rows: int, target: Path) -> None:
    from pyspark_pgrouse.connection.connection import connect  # noqa: PLC0415
    from pyspark_pgrouse.lake.columns import ColumnChoice, archive_columns  # noqa: PLC0415

    where = conninfo_to_dict(database.dsn)
    with connect(database.dsn) as conn:
        columns = ", ".join(f'{c.sql} AS "{c.name}"' for c in archive_columns(conn, ColumnChoice()))
    reader = (
        spark.read.format("jdbc")
        .option("url", f"jdbc:postgresql://{where['host']}:{where['port']}/{where['dbname']}")
        .option("user", str(where.get("user", "postgres")))
        .option("password", str(where.get("password", "")))
        .option("dbtable", f"(SELECT {columns} FROM messages.message_archive AS a) AS t")
        .option("driver", "org.postgresql.Driver")
        .option("fetchsize", 10_000)
        .option("partitionColumn", "id")
        .option("lowerBound", 1)
        .option("upperBound", rows)
        .option("numPartitions", PARTITIONS)
    )
    # Write the same Parquet: a lake is partitioned by date and topic.
    reader.load().write.option("compression", "zstd").partitionBy("date", "topic").parquet(str(target))
