"""A lake as a table of a catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pgrouse.errors import ConfigError
from pyspark_pgrouse.lake.catalog import register
from pyspark_pgrouse.lake.lake import Lake
from tests.pipeline.lakes import exported, fill
from tests.server.postgres import Database
from tests.sql.queue import Queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]
COMMENT = """
    SELECT col_description(attrelid, attnum) FROM pg_attribute
    WHERE attrelid = 'messages.message_archive'::regclass AND attname = 'result'"""


@pytest.fixture
def schema(spark: SparkSession) -> Iterator[str]:
    """A schema of Spark's own catalog."""
    spark.sql("CREATE SCHEMA team")
    yield "spark_catalog.team"
    spark.sql("DROP SCHEMA team CASCADE")


def test_a_lake_is_a_delta_table_of_a_catalog_with_the_comments_of_the_archive(
    spark: SparkSession, queue: Queue, database: Database, schema: str, tmp_path: Path
) -> None:
    fill(queue, 30)
    exported(database, str(tmp_path / "a lake's"))
    lake = Lake.open(str(tmp_path / "a lake's"))

    assert register(spark, lake, f"{schema}.archive")
    assert not register(spark, lake, f"{schema}.archive")

    (shown,) = spark.sql("SHOW TABLE EXTENDED IN team LIKE 'archive'").collect()
    assert "Provider: delta\n" in shown.information
    assert "Type: EXTERNAL\n" in shown.information
    comments = {row.col_name: row.comment for row in spark.sql("DESCRIBE TABLE team.archive").collect()}
    assert comments["result"] == queue.value(COMMENT)
    assert comments["date"] == "day of archived_at, in UTC"


def test_a_name_that_another_table_has_or_that_the_catalog_refuses_is_an_error(
    spark: SparkSession, database: Database, schema: str, tmp_path: Path
) -> None:
    for name in ("lake", "of-a-lake"):
        exported(database, str(tmp_path / name), name=name)
    register(spark, Lake.open(str(tmp_path / "of-a-lake")), f"{schema}.archive")
    lake = Lake.open(str(tmp_path / "lake"))

    with pytest.raises(ConfigError, match="is not the lake"):
        register(spark, lake, f"{schema}.archive")
    with pytest.raises(ConfigError, match=r"cannot be registered as missing\.archive: .*SCHEMA_NOT_FOUND"):
        register(spark, lake, "missing.archive")
