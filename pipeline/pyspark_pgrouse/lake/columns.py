"""The columns of the archive as they are now, and as a lake has them. What a later version adds is in the lake from then on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from psycopg.sql import Identifier

from pyspark_pgrouse.connection import check
from pyspark_pgrouse.lake.manifest import LakeColumn

if TYPE_CHECKING:
    import psycopg

COLUMNS = """
    SELECT a.attname, pg_catalog.format_type(a.atttypid, NULL)
    FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = to_regclass('messages.message_archive') AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""
# What an export cannot do without.
NEEDED = ("id", "topic", "archived_at", "archive_xid")
# What Arrow calls a type of PostgreSQL. Everything else travels as text: a document that breaks a reader then harms only itself.
TYPES = {
    "smallint": "int16",
    "integer": "int32",
    "bigint": "int64",
    "boolean": "bool",
    "real": "float",
    "double precision": "double",
    "bytea": "binary",
    "date": "date32[day]",
    "timestamp with time zone": "timestamp[us, tz=UTC]",
    "xid8": "int64",
}
# The day of archived_at in UTC, by which the lake is partitioned.
DATE = LakeColumn("date", "date32[day]")


@dataclass(frozen=True)
class ArchiveColumn:
    """A column of the archive, and how it is read. sql: an expression about the alias `a`."""

    column: LakeColumn
    sql: str


def archive_columns(conn: psycopg.Connection[Any]) -> tuple[ArchiveColumn, ...]:
    """Return what an export reads: all columns of the archive, and the date.

    Raises:
        SchemaMismatch: the schema is not there, or too old for an export.
        ConfigError: this role may not read all of it.
    """
    check(conn, "message_archive", NEEDED)
    found = [_read(name, kind) for name, kind in conn.execute(COLUMNS)]
    check(conn, "message_archive", [each.column.name for each in found])
    date = ArchiveColumn(DATE, "(a.archived_at AT TIME ZONE 'UTC')::date")
    return (*(each for each in found if each.column.name != DATE.name), date)


def arrow_type(name: str) -> pa.DataType:
    """Return the type that a column of a lake says."""
    special = {"timestamp[us, tz=UTC]": pa.timestamp("us", "UTC"), "date32[day]": pa.date32()}
    return special.get(name) or pa.type_for_alias(name)


def arrow_schema(columns: tuple[LakeColumn, ...]) -> pa.Schema:
    """Return the schema of files with these columns."""
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])


def _read(name: str, kind: str) -> ArchiveColumn:
    where = f"a.{Identifier(name).as_string(None)}"
    if kind == "xid8":
        where = f"{where}::text::bigint"
    elif kind not in TYPES and kind != "text":
        where = f"{where}::text"
    return ArchiveColumn(LakeColumn(name, TYPES.get(kind, "string")), where)
