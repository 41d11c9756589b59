"""Engines that know nothing of pgrouse, and Spark without a jar, read a lake.

They read only the files that a query needs.
"""

from __future__ import annotations

import pickle
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import datasource
from pyspark.sql.pandas.types import from_arrow_schema

from pgrouse.errors import ConfigError
from pyspark_pgrouse.lake.lake import Lake
from pyspark_pgrouse.lake.options import LakeOptions
from pyspark_pgrouse.lake.reader import LakeFiles, PushdownLakeBatch
from tests.pipeline.lakes import exported, fill, lake, rows
from tests.server.postgres import Database
from tests.sql.queue import Queue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

__all__ = ["lake"]


@pytest.fixture(scope="module")
def exported_queue(shared: Database) -> Queue:
    """The queue whose archive is in the lake."""
    return Queue(shared.connect())


@pytest.fixture(scope="module")
def exported_lake(shared: Database, exported_queue: Queue, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake of two commits, which the tests only read: ids 1 to 30, and 31 to 60."""
    made = str(tmp_path_factory.mktemp("exported") / "lake")
    for _ in range(2):
        fill(exported_queue, 30)
        exported(shared, made)
    return made


def test_duckdb_polars_and_pyarrow_read_the_same_rows(exported_queue: Queue, exported_lake: str) -> None:
    import polars as pl  # noqa: PLC0415 - slow to import, and every process of the tests reads this file

    wanted = [
        row.id for row in exported_queue.rows("SELECT id FROM messages.message_archive WHERE topic = 'a:b' ORDER BY id")
    ]

    by_polars = pl.scan_delta(exported_lake).filter(pl.col("topic") == "a:b").select("id").collect()
    by_arrow = DeltaTable(exported_lake).to_pyarrow_dataset().to_table(["id"], filter=pc.field("topic") == "a:b")

    assert sorted(by_polars["id"].to_list()) == wanted
    assert sorted(by_arrow.column("id").to_pylist()) == wanted
    assert [row[0] for row in rows(exported_lake, where="topic = 'a:b'")] == wanted


@pytest.mark.parametrize(
    ("condition", "files"),
    [
        (pc.field("topic") == "a:b", 4),
        (pc.field("id") <= 30, 6),
        (pc.field("id") == 31, 1),
        (pc.field("archived_at") > datetime.now(UTC) + timedelta(days=1), 0),
    ],
)
def test_the_log_leaves_out_files_by_partition_and_by_statistics(
    exported_lake: str, condition: Any, files: int
) -> None:
    fragments = DeltaTable(exported_lake).to_pyarrow_dataset().get_fragments(condition)

    assert len(list(fragments)) == files


def test_a_lake_is_read_as_it_was(exported_lake: str) -> None:
    before = Lake.open(exported_lake).as_of(1)

    assert sorted(before.table.to_pyarrow_table().column("id").to_pylist()) == list(range(1, 31))
    with pytest.raises(ConfigError, match="has no version 77"):
        before.as_of(77)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"mode": "dead"}, "option mode does not go with option lake"),
        ({"versionAsOf": "last"}, "option versionAsOf must be a whole number"),
        ({"since": "2027-01-01T00:00"}, "option since needs a time zone"),
        ({"storageOptions": "{"}, "option storageOptions must be a JSON object"),
        ({"pushdown": "yes"}, "option pushdown must be true or false"),
        ({"topics": "a,,b"}, "option topics must be names with commas between them"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        LakeOptions.parse({"lake": "/nowhere"} | options)


def test_a_bound_may_be_a_duration_before_now() -> None:
    since = LakeOptions.parse({"lake": "/nowhere", "since": "2h"}).since

    assert since is not None
    assert timedelta(hours=2) <= datetime.now(UTC) - since < timedelta(hours=3)


# Spark: what it does in its processes, without it


def found(
    lake: str, *filters: datasource.Filter, columns: str = "", **options: str
) -> tuple[int, list[dict[str, Any]]]:
    """Return how many files are opened, and the rows."""
    asked = LakeOptions.parse({"lake": lake, **options})
    there = Lake.open(lake).schema
    chosen = [there.field(name) for name in columns.split() or there.names]
    reader = PushdownLakeBatch(asked, from_arrow_schema(pa.schema(chosen)))
    assert list(reader.pushFilters(list(filters))) == list(filters)
    parts: list[LakeFiles] = pickle.loads(pickle.dumps(reader.partitions()))
    assert parts  # for no partition Spark would make one of its own, without files
    worker = pickle.loads(pickle.dumps(reader))
    rows = [row for part in parts for batch in worker.read(part) for row in batch.to_pylist()]
    return sum(len(part.fragments) for part in parts), sorted(rows, key=lambda row: row["id"])


IN_A_YEAR = datetime.now(UTC) + timedelta(days=365)


@pytest.mark.parametrize(
    ("filters", "files"),
    [
        ([], 12),
        ([datasource.EqualTo(("topic",), "a:b")], 4),
        ([datasource.In(("topic",), ("007", "it's"))], 4),
        ([datasource.EqualTo(("id",), 31)], 1),
        ([datasource.GreaterThan(("id",), 30), datasource.LessThanOrEqual(("id",), 60)], 6),
        ([datasource.LessThan(("archived_at",), IN_A_YEAR)], 12),
        ([datasource.GreaterThanOrEqual(("archived_at",), IN_A_YEAR)], 0),
        ([datasource.EqualTo(("date",), IN_A_YEAR.date())], 0),
        ([datasource.IsNull(("key",))], 12),
        ([datasource.IsNotNull(("id",)), datasource.StringStartsWith(("topic",), "a")], 12),
        ([datasource.Not(datasource.EqualTo(("topic",), "a:b"))], 12),
        ([datasource.EqualTo(("topic", "field"), "a:b")], 12),
    ],
)
def test_a_reader_opens_the_files_of_its_filters(
    exported_lake: str, filters: list[datasource.Filter], files: int
) -> None:
    opened, _ = found(exported_lake, *filters, columns="id")

    assert opened == files


@pytest.fixture(scope="module")
def lake_by_date(shared: Database, exported_lake: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake of the same rows, partitioned by date only."""
    assert exported_lake
    made = str(tmp_path_factory.mktemp("by-date") / "lake")
    exported(shared, made, name="by-date", partition_by=("date",))
    return made


@pytest.mark.parametrize("of", [{}, {"topics": "a:b"}, {"topics": "007,mail"}, {"topics": "it's"}])
def test_a_lake_by_date_has_the_same_rows(exported_lake: str, lake_by_date: str, of: dict[str, str]) -> None:
    assert found(lake_by_date, **of)[1] == found(exported_lake, **of)[1]


@pytest.mark.spark
def test_spark_reads_a_lake_by_date_of_some_topics(exported_lake: str, lake_by_date: str, spark: SparkSession) -> None:
    wanted = [row["id"] for row in found(exported_lake, topics="a:b")[1]]

    read_by_spark = Lake.open(lake_by_date).read(spark, topics=["a:b"]).select("id").collect()

    assert sorted(row.id for row in read_by_spark) == wanted


def test_a_reader_has_the_rows_of_the_table(exported_lake: str) -> None:
    _, read = found(exported_lake)

    assert read == DeltaTable(exported_lake).to_pyarrow_table().sort_by("id").to_pylist()


def test_a_reader_has_the_chosen_columns_version_and_time(exported_lake: str) -> None:
    assert found(exported_lake, columns="topic id", versionAsOf="1")[1] == [
        {"topic": row[0], "id": row[1]} for row in rows(exported_lake, "topic, id", "id <= 30")
    ]
    assert found(exported_lake, until=IN_A_YEAR.isoformat(), topics="mail, 007", columns="id")[0] == 8
    assert found(exported_lake, since=IN_A_YEAR.isoformat(), columns="id") == (0, [])


# Spark


ALLOWED = "spark.sql.python.filterPushdown.enabled"


def read(spark: SparkSession, lake: str, **options: str) -> DataFrame:
    return spark.read.format("pgrouse").options(lake=lake, **options).load()


@pytest.mark.spark
@pytest.mark.parametrize(
    "where",
    [
        "topic IN ('007', 'mail') AND id BETWEEN 29 AND 42",
        "topic LIKE 'a%' OR id = 3",
        "payload IS NULL AND NOT topic = 'mail'",
        "archived_at >= now() - INTERVAL 10 HOURS",
        "topic = 'in no file'",
    ],
)
def test_spark_reads_a_filtered_lake_without_a_jar(exported_lake: str, spark: SparkSession, where: str) -> None:
    found = read(spark, exported_lake).where(where).select("id").collect()

    assert sorted(tuple(row) for row in found) == rows(exported_lake, where=where)


@pytest.mark.spark
def test_spark_opens_only_the_files_of_a_filter(
    exported_queue: Queue, exported_lake: str, tmp_path: Path, spark: SparkSession
) -> None:
    """The others are broken: a query that opened one would fail."""
    broken = shutil.copytree(exported_lake, tmp_path / "broken")
    for path in broken.glob("date=*/topic=mail/*.parquet"):
        path.write_bytes(b"not even Parquet")

    found = read(spark, str(broken)).where("topic = '007'").select("id").collect()

    assert sorted(row.id for row in found) == [
        row.id for row in exported_queue.rows("SELECT id FROM messages.message_archive WHERE topic = '007' ORDER BY id")
    ]


@pytest.mark.spark
def test_a_view_reads_a_lake_in_sql_also_if_the_session_pushes_no_filters(
    exported_lake: str, spark: SparkSession
) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW messages USING pgrouse OPTIONS (lake '{exported_lake}')")
    spark.conf.set(ALLOWED, "false")
    try:
        found = spark.sql("SELECT id FROM messages WHERE topic = 'a:b'").collect()
    finally:
        spark.conf.set(ALLOWED, "true")

    assert sorted(tuple(row) for row in found) == rows(exported_lake, where="topic = 'a:b'")


@pytest.mark.spark
def test_spark_reads_chosen_columns_a_version_and_a_time(exported_lake: str, spark: SparkSession) -> None:
    def reader() -> DataFrameReader:
        return spark.read.format("pgrouse").option("lake", exported_lake)

    hour_ago = datetime.now(UTC) - timedelta(hours=1)

    assert reader().schema("topic STRING, id BIGINT").load().columns == ["topic", "id"]
    assert reader().option("versionAsOf", 1).load().count() == 30
    assert reader().option("since", hour_ago.isoformat()).option("topics", "mail,007").load().count() == len(
        rows(exported_lake, where=f"archived_at >= '{hour_ago.isoformat()}' AND topic <> 'a:b'")
    )


# Types that change


@pytest.mark.spark
def test_a_column_whose_type_changed_stays_readable(own_database: Database, lake: str, spark: SparkSession) -> None:
    queue = Queue(own_database.connect())
    queue.conn.execute(
        "ALTER TABLE messages.message_archive ADD price numeric DEFAULT 1.5, ADD size integer DEFAULT 7, ADD "
        "note bigint DEFAULT 1"
    )
    fill(queue, 2)
    exported(own_database, lake)
    queue.conn.execute(
        "ALTER TABLE messages.message_archive ALTER price TYPE double precision, ALTER size TYPE bigint, "
        "ALTER note DROP DEFAULT, ALTER note TYPE text"
    )
    queue.conn.execute("ALTER TABLE messages.message_archive ALTER note SET DEFAULT 'x'")
    fill(queue, 2)

    exported(own_database, lake)

    wanted = [("1.5", 7, 1, None)] * 2 + [("1.5", 7, None, "x")] * 2
    columns = "price, size, note, note_string"
    assert rows(lake, columns) == wanted
    found = Lake.open(lake).read(spark).orderBy("id").selectExpr(*columns.split(", ")).collect()
    assert [tuple(row) for row in found] == wanted
