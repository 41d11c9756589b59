"""The columns of the archive as they are now, and as a lake has them.

A column that a later version adds is in the lake from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from psycopg.sql import Identifier

from pgrouse.client.call import run
from pgrouse.client.queries.pipeline.table import TableColumn, table_columns
from pgrouse.errors import ConfigError
from pyspark_pgrouse.connection.connection import check

if TYPE_CHECKING:
    import psycopg

# The columns that an export needs in any case.
NEEDED = ("id", "topic", "archived_at", "archive_xid")
TIMESTAMP = pa.timestamp("us", "UTC")
# Arrow's name of a type of PostgreSQL; numbers are as wide as possible, so that they may grow in the archive.
# Everything else is read as text: then a document that breaks a reader affects only itself.
TYPES = {
    "smallint": pa.int64(),
    "integer": pa.int64(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "real": pa.float64(),
    "double precision": pa.float64(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp with time zone": TIMESTAMP,
    "xid8": pa.int64(),
}
# What a lake may be partitioned by. A lake with many topics is partitioned by date only, and sorted by topic.
PARTITIONINGS = (("date", "topic"), ("date",))


@dataclass(frozen=True)
class ArchiveColumn:
    """A column of the archive as the lake has it, and how it is read. sql: an expression about the alias `a`."""

    name: str
    type: pa.DataType
    sql: str
    comment: str = ""


# The day of archived_at in UTC.
DATE = ArchiveColumn("date", pa.date32(), "(a.archived_at AT TIME ZONE 'UTC')::date", "day of archived_at, in UTC")


@dataclass(frozen=True)
class ColumnChoice:
    """The columns of the archive that a lake has.

    Attributes:
        only: these, and those that an export needs; empty = all.
        exclude: all but these.
        mask: the columns for which the lake has the SHA-256 of the value as text, in hexadecimal.
    """

    only: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    mask: tuple[str, ...] = ()

    def check(self, there: Sequence[str]) -> None:
        """Check that the choice is possible.

        Raises:
            ConfigError: a column does not exist, or cannot be left out or masked.
        """
        for option, names in {"columns": self.only, "exclude": self.exclude, "mask": self.mask}.items():
            if unknown := sorted(set(names) - set(there)):
                raise ConfigError(f"--{option}: the archive has no column {unknown[0]}; it has {', '.join(there)}")
            if option != "columns" and (needed := sorted(set(names) & set(NEEDED))):
                raise ConfigError(f"--{option}: an export needs the column {needed[0]} as it is")

    def of(self, columns: Sequence[ArchiveColumn]) -> list[ArchiveColumn]:
        """Return the chosen columns, masked where requested."""
        chosen = [c for c in columns if c.name in NEEDED or (not self.only or c.name in self.only)]
        return [_masked(c) if c.name in self.mask else c for c in chosen if c.name not in self.exclude]


def archive_columns(
    conn: psycopg.Connection[Any], choice: ColumnChoice, table: pa.Schema | None = None
) -> tuple[ArchiveColumn, ...]:
    """Return the columns that an export reads, in the types of a table with these columns.

    They are the chosen columns of the archive, and the date.

    Raises:
        SchemaMismatch: the schema does not exist, or is too old for an export.
        ConfigError: this role may not read all of it, or the choice is not possible.
    """
    check(conn, "message_archive", NEEDED)
    found = [_read(each) for each in run(conn, table_columns("message_archive")) if each.name != DATE.name]
    if table is None:
        choice.check([column.name for column in found])
    chosen = choice.of(found)
    check(conn, "message_archive", [column.name for column in chosen])
    return tuple(_fitted(column, table or pa.schema([])) for column in (*chosen, DATE))


def arrow_schema(columns: Sequence[ArchiveColumn]) -> pa.Schema:
    """Return the schema of rows with these columns, with their comments as Delta keeps them."""
    return pa.schema([_field(column) for column in columns])


def _field(column: ArchiveColumn) -> pa.Field:
    return pa.field(column.name, column.type, metadata={"comment": column.comment} if column.comment else None)


def _read(column: TableColumn) -> ArchiveColumn:
    where = f"a.{Identifier(column.name).as_string(None)}"
    if column.type == "xid8":
        where = f"{where}::text::bigint"
    elif column.type not in TYPES and column.type != "text":
        where = f"{where}::text"
    return ArchiveColumn(column.name, TYPES.get(column.type, pa.string()), where, column.comment)


def _masked(column: ArchiveColumn) -> ArchiveColumn:
    digest = f"encode(sha256(convert_to(({column.sql})::text, 'UTF8')), 'hex')"
    return replace(column, type=pa.string(), sql=digest, comment=f"SHA-256 of: {column.comment}")


def _fitted(column: ArchiveColumn, table: pa.Schema) -> ArchiveColumn:
    """Convert a column whose type has changed to a table.

    A column of the table never changes its type, since no engine could read it then.

    Text accepts everything. Any other column whose new type does not fit continues as a column with the new type in its
    name.
    """
    index = table.get_field_index(column.name)
    if index < 0 or table.field(index).type == column.type:
        return column
    if table.field(index).type == pa.string():
        return replace(column, type=pa.string(), sql=f"({column.sql})::text")
    renamed = replace(column, name=f"{column.name}_{_word(column.type)}")
    return _fitted(renamed, table)


def _word(type_: pa.DataType) -> str:
    return "timestamp" if type_ == TIMESTAMP else str(type_).partition("[")[0]
