"""The columns of a read: their names, their types, and their sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pgrouse.errors import ConfigError
from pyspark_pgrouse.options import ALL_COLUMNS, BINARY, INFER, JSON, SCHEMA, Mode, Options, hint

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Spark's readers put into this column what they cannot parse; here it has payloads that lack the requested fields.
CORRUPT = "_corrupt_record"
# Contents from handlers, publishers and workers, of any size. They are read only on request.
CONTENT = ("payload", "body", "headers", "state", "progress", "output")


@dataclass(frozen=True)
class SourceColumn:
    """One column of a read."""

    name: str
    spark: str
    """Its type in Spark's DDL."""
    sql: str
    """Its source: an expression about the alias `a`."""
    source: tuple[str, ...]
    """The columns of the table that must be readable for it."""

    @property
    def bare(self) -> str:
        """The column without conversion, as in an index."""
        return f"a.{self.name}"


def _plain(name: str, spark: str) -> SourceColumn:
    return SourceColumn(name, spark, f"a.{name}", (name,))


def _cast(name: str, spark: str, type_: str) -> SourceColumn:
    return SourceColumn(name, spark, f"a.{name}::{type_}", (name,))


def _text(name: str) -> SourceColumn:
    # Domains have their own types, which ADBC does not know, and JSON that Arrow or Python cannot represent must not
    # break a read.
    return _cast(name, "STRING", "text")


def _seconds(name: str) -> SourceColumn:
    # Arrow has no type for months.
    return SourceColumn(name, "DOUBLE", f"extract(epoch FROM a.{name})::double precision", (name,))


MESSAGE = (
    _plain("id", "BIGINT"),
    _text("topic"),
    _text("channel"),
    _text("key"),
    _cast("priority", "INT", "integer"),
    _text("payload"),
    _cast("body", "BINARY", "bytea"),
    _text("headers"),
    _text("state"),
    _text("progress"),
    _cast("created_at", "TIMESTAMP", "timestamptz"),
    _cast("available_at", "TIMESTAMP", "timestamptz"),
    _cast("expires_at", "TIMESTAMP", "timestamptz"),
    _cast("attempts", "INT", "integer"),
    _cast("runs", "INT", "integer"),
    _cast("max_attempts", "INT", "integer"),
    _seconds("timeout"),
    _text("backoff"),
    _seconds("retention"),
    _text("history"),
    _plain("origin_id", "BIGINT"),
    _text("original_topic"),
    _plain("dlq_moved_at", "TIMESTAMP"),
    _plain("redriven_from", "BIGINT"),
    _plain("redrives", "INT"),
    _plain("batch_id", "BIGINT"),
)
ENDED = (
    _plain("claim_id", "BIGINT"),
    _plain("locked_at", "TIMESTAMP"),
    _text("result"),
    _text("error"),
    _text("error_fingerprint"),
    _text("output"),
    _text("handled_by"),
    _plain("archived_at", "TIMESTAMP"),
    # Transaction ids are unsigned, but even with a million per second the upper half is 290,000 years away; as a number
    # it has statistics in Parquet.
    SourceColumn("archive_xid", "BIGINT", "a.archive_xid::text::bigint", ("archive_xid",)),
)
ARCHIVE = (*MESSAGE, *ENDED)
# How many messages a group has.
COUNT = SourceColumn("count", "BIGINT", "count(*)", ())
# The columns of a claim's result: messages.claimed.
CLAIMED = tuple(
    _plain(name, spark)
    for name, spark in {
        "id": "BIGINT",
        "claim_id": "BIGINT",
        "topic": "STRING",
        "channel": "STRING",
        "key": "STRING",
        "priority": "INT",
        "attempt": "INT",
        "max_attempts": "INT",
        "payload": "STRING",
        "body": "BINARY",
        "headers": "STRING",
        "state": "STRING",
    }.items()
)
OF_MODE = {Mode.ARCHIVE: ARCHIVE, Mode.DEAD: ARCHIVE, Mode.READY: MESSAGE}


def columns(options: Options) -> tuple[SourceColumn, ...]:
    """Return all columns that a read may have, in their order."""
    made = OF_MODE[options.mode]
    if options.group_by:
        known = {column.name: column for column in made}
        return (*(_named(name, known, options) for name in dict.fromkeys(options.group_by)), COUNT)
    if options.payload in (None, JSON):
        return made
    if options.payload == BINARY:
        return tuple(_bytes(column) for column in made if column.name != "body")
    return tuple(part for column in made for part in _parsed(column, options.payload or ""))


def default_columns(options: Options) -> tuple[SourceColumn, ...]:
    """Return the columns of a read without a schema.

    They are those that its options name, otherwise all but the contents of messages.

    A read with an option about payloads also has payloads.

    Raises:
        ConfigError: option columns names a column that does not exist.
    """
    known = {column.name: column for column in columns(options)}
    if options.columns == (ALL_COLUMNS,) or options.group_by:
        return tuple(known.values())
    if options.columns:
        return tuple(_named(name, known, options) for name in dict.fromkeys(options.columns))
    left_out = set(CONTENT) - (_payload_columns(options) if options.payload else set())
    return tuple(column for column in known.values() if column.name not in left_out)


def _payload_columns(options: Options) -> set[str]:
    return {"payload", "body"} if options.payload == JSON else {"payload"}


def _named(name: str, known: dict[str, SourceColumn], options: Options) -> SourceColumn:
    if name in known:
        return known[name]
    raise ConfigError(f"no column {name} in mode {options.mode}: {hint(name, known)}")


def _bytes(column: SourceColumn) -> SourceColumn:
    if column.name != "payload":
        return column
    return replace(
        column,
        spark="BINARY",
        sql="coalesce(a.body::bytea, convert_to(a.payload::text, 'UTF8'))",
        source=("payload", "body"),
    )


def _parsed(column: SourceColumn, fields: str) -> tuple[SourceColumn, ...]:
    if column.name != "payload":
        return (column,)
    # A payload that does not match is kept in another column, so that no message is lost because of its payload.
    struct = "STRUCT" if fields in (SCHEMA, INFER) else f"STRUCT<{fields}>"
    return (replace(column, spark=struct), SourceColumn(CORRUPT, "STRING", "NULL::text", ()))


def ddl(options: Options) -> str:
    """Return the columns of a read without a schema in Spark's DDL. The fields of its payload are known by now."""
    return typed(default_columns(options))


def typed(chosen: Sequence[SourceColumn]) -> str:
    """Return columns in Spark's DDL."""
    return ", ".join(f"{column.name} {column.spark}" for column in chosen)


def chosen(options: Options, schema: StructType) -> tuple[SourceColumn, ...]:
    """Return the columns of a read with this schema, in the order of the schema.

    A user's schema may have fewer columns than exist: the others are not read.

    Raises:
        ConfigError: it has a column that does not exist, or one of another type.
    """
    known = {column.name: column for column in columns(options)}
    for field in schema.fields:
        _check(field, known, options)
    if CORRUPT in schema.names and "payload" not in schema.names:
        raise ConfigError(f"column {CORRUPT} needs column payload too: it holds payloads that do not match")
    return tuple(known[field.name] for field in schema.fields)


def _check(field: Any, known: dict[str, SourceColumn], options: Options) -> None:
    expected = _named(field.name, known, options).spark
    # Spark has parsed the fields of a struct, and reports an error in them.
    if not expected.startswith("STRUCT") and field.dataType.simpleString() != expected.lower():
        raise ConfigError(f"column {field.name} is {expected}, not {field.dataType.simpleString().upper()}")


def select(chosen: Sequence[SourceColumn]) -> str:
    """Return the columns as a list for SELECT, of the alias `a`."""
    return ", ".join(f"{column.sql} AS {column.name}" for column in chosen)


def sources(chosen: Sequence[SourceColumn]) -> list[str]:
    """Return the columns of the table that must be readable."""
    return sorted({name for column in chosen for name in column.source})
