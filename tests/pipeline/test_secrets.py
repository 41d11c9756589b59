"""No password is shown: not by options, errors, plans or tasks."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from pgrouse.errors import ConfigError, DatabaseUnreachable
from pyspark_pgrouse.connection import connection
from pyspark_pgrouse.options import Options
from pyspark_pgrouse.read.archive_batch import ArchiveBatch
from tests.pipeline.reading import PASSWORD, archive, login, spark_schema
from tests.server.postgres import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOWHERE = f"postgresql://leo:{PASSWORD}@127.0.0.1:1/none"


def test_options_do_not_show_the_connection_string() -> None:
    assert PASSWORD not in repr(Options.parse({"dsn": NOWHERE}))


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://leo:{PASSWORD}@127.0.0.1/none?bogus=1",
        f"host=127.0.0.1 password={PASSWORD} bogus=1",
        f"leo:{PASSWORD}@host",
    ],
)
def test_an_invalid_connection_string_is_not_repeated(dsn: str) -> None:
    with pytest.raises(ConfigError, match="option dsn is not a connection string") as caught:
        connection.connect(dsn)

    assert PASSWORD not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_unreachable_database_is_reported_without_the_password() -> None:
    with pytest.raises(DatabaseUnreachable, match=r"no connection to PostgreSQL: .*127.0.0.1") as by_driver:
        connection.connect(NOWHERE)
    with pytest.raises(DatabaseUnreachable, match=r"no connection to PostgreSQL: .*127.0.0.1") as by_executor:
        list(connection.arrow(NOWHERE, "SELECT 1", retry_timeout_s=0))

    assert PASSWORD not in str(by_driver.value) + str(by_executor.value)


def test_the_task_of_a_read_has_no_password(own_database: Database) -> None:
    archive(own_database.connect(), [1])

    with login(own_database, "messages_operator") as dsn:
        options = Options.parse({"dsn": dsn})
        parts = ArchiveBatch(options, spark_schema(options)).partitions()

    assert PASSWORD in dsn
    assert PASSWORD.encode() not in pickle.dumps(parts)
    assert PASSWORD not in repr(parts)


@pytest.mark.spark
def test_no_plan_of_spark_has_the_password(spark: SparkSession) -> None:
    frame = spark.read.format("pgrouse").option("dsn", NOWHERE).load()
    create = f"CREATE TEMPORARY VIEW secret_view USING pgrouse OPTIONS (dsn '{NOWHERE}')"

    plans = [frame._jdf.queryExecution().analyzed().toString(), frame._jdf.queryExecution().logical().toJSON()]
    plans += [row[0] for row in spark.sql(f"EXPLAIN EXTENDED {create}").collect()]

    assert any("redacted" in plan for plan in plans)
    assert PASSWORD not in str(plans)
