"""Registers a lake in a catalog of Spark, so that engines find it by a name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructType

from pgrouse.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_pgrouse.lake.lake import Lake


def register(spark: SparkSession, lake: Lake, name: str) -> bool:
    """Make a lake a Delta table of a catalog, unless it is one; return whether it was none.

    Args:
        spark: the session that has the catalog. It need not have Delta Lake.
        lake: the lake.
        name: `table`, `schema.table` or `catalog.schema.table`.

    Raises:
        ConfigError: the name is that of another table, or the catalog refuses.
    """
    parts = name.split(".")
    table = ".".join(map(_name, parts))
    try:
        if is_new := not spark.catalog.tableExists(table):
            _create(spark, lake, table)
        if not _is_at(spark, lake, parts):
            raise ConfigError(
                f"the table {name} is not the lake {lake.directory.url}: drop it, or choose another --table"
            )
    except PySparkException as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"the lake {lake.directory.url} cannot be registered as {name}: {reason}") from error
    return is_new


def _create(spark: SparkSession, lake: Lake, table: str) -> None:
    statement = f"CREATE TABLE IF NOT EXISTS {table} USING delta LOCATION {_literal(lake.directory.url)}"
    try:
        spark.sql(statement)
    except (PySparkException, Py4JJavaError) as error:
        if "[DATA_SOURCE_NOT_FOUND]" not in str(error):
            raise
        spark.dataSource.register(_named_delta(_schema(lake)))
        spark.sql(statement)


def _named_delta(schema: StructType) -> type[DataSource]:
    """Return a format `delta` that can only say the columns: a catalog asks for no more when it creates a table."""

    class ColumnsOfDelta(DataSource):
        @classmethod
        def name(cls) -> str:
            return "delta"

        def schema(self) -> StructType:
            return schema

    return ColumnsOfDelta


def _schema(lake: Lake) -> StructType:
    schema = StructType()
    for field in lake.schema:
        comment = (field.metadata or {}).get(b"comment")
        schema.add(field.name, from_arrow_type(field.type), True, {"comment": comment.decode()} if comment else None)
    return schema


def _is_at(spark: SparkSession, lake: Lake, parts: list[str]) -> bool:
    """Whether a table is at the place of a lake."""
    *schema, table = parts
    where = f"IN {'.'.join(map(_name, schema))} " if schema else ""
    shown = spark.sql(f"SHOW TABLE EXTENDED {where}LIKE {_literal(table)}").collect()
    # The scheme may have another form: file:/lake, s3:// for s3a://.
    place = re.escape(lake.directory.url.partition("://")[2] or lake.directory.url)
    return any(re.search(rf"^Location: .*{place}/?$", row.information, re.MULTILINE) for row in shown)


def _name(part: str) -> str:
    return f"`{part.replace('`', '``')}`"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
