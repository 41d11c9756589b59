"""The tables as the server has them, and what the caller's role may read of them."""

from __future__ import annotations

from dataclasses import dataclass

from pgrouse.client.call import Call, pair, query_call

ACCESS = b"""
    SELECT to_regnamespace('messages') IS NOT NULL,
           coalesce(has_schema_privilege(to_regnamespace('messages')::oid, 'USAGE'), false)"""
COLUMNS = """
    SELECT a.attname AS name, pg_catalog.format_type(a.atttypid, NULL) AS type, a.attnum,
           has_column_privilege(a.attrelid, a.attnum, 'SELECT') AS is_readable,
           coalesce(pg_catalog.col_description(a.attrelid, a.attnum), '') AS comment
    FROM pg_catalog.pg_attribute AS a
    JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
    WHERE c.relnamespace = to_regnamespace('messages') AND c.relname = %(table)s
      AND a.attnum > 0 AND NOT a.attisdropped"""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table, whether this role may read it, and its comment; empty if it has none."""

    name: str
    type: str
    is_readable: bool
    comment: str


def schema_access() -> Call[tuple[bool, bool]]:
    """Say whether there is the schema, and whether this role may use it."""
    return Call(ACCESS, [], pair)


def table_columns(table: str) -> Call[list[TableColumn]]:
    """Read the columns of a table, in their order."""
    return query_call(COLUMNS, TableColumn, "ORDER BY f.attnum", table=table)
