"""The schema of a connection of psycopg: the door through which the statements of the package go.

A connection that pgrouse makes for another schema than `messages` renders each statement that is executed on it. So
code says `messages`, and need not know of this. The connections of handlers, and those of callers, have statements of
others too, and are only remembered: `client.call.run` and the drivers of `publishing` render what they execute there.
A connection for the schema `messages` is psycopg's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg import sql

from pgrouse.database import schema_name
from pgrouse.database.schema_name import SchemaName

CONNECTIONS = (psycopg.Connection, psycopg.AsyncConnection)
C = TypeVar("C", bound="psycopg.Connection[Any] | psycopg.AsyncConnection[Any]")

QUALIFIER = f'"{schema_name.WRITTEN}".'
# Those of other schemas than `messages`; usually there is none.
_schemas: WeakKeyDictionary[Any, SchemaName] = WeakKeyDictionary()


def remember(conn: C, schema: SchemaName) -> C:
    """Let calls on a connection mean this schema; statements of others on it stay as they are. Return it."""
    if not schema.is_default:
        _schemas[conn] = schema
    return conn


def use(conn: C, schema: SchemaName) -> C:
    """Render every statement on a connection for this schema. Return it."""
    if not schema.is_default:
        _render_all(remember(conn, schema))
    return conn


@contextmanager
def rendering(conn: Any) -> Iterator[None]:
    """Render the statements of a block on a connection of the caller, for the schema that calls on it mean."""
    before = conn.cursor_factory
    if not schema_of(conn).is_default:
        _render_all(conn)
    try:
        yield
    finally:
        conn.cursor_factory = before


def _render_all(conn: Any) -> None:
    conn.cursor_factory = AsyncRenderingCursor if isinstance(conn, psycopg.AsyncConnection) else RenderingCursor


def schema_of(conn: object) -> SchemaName:
    """Return the schema that calls on a connection mean: its own, else that of `use_schema` or of the environment."""
    own = _schemas.get(conn) if _schemas and isinstance(conn, CONNECTIONS) else None
    return own or schema_name.current()


class _Rendering:
    """Renders the statements of a cursor for the schema of its connection. Those of an async one return awaitables."""

    connection: Any

    def execute(self, query: Any, *args: Any, **options: Any) -> Any:
        """Execute the rendered query."""
        return super().execute(_rendered(self.connection, query), *args, **options)  # type: ignore[misc]

    def executemany(self, query: Any, *args: Any, **options: Any) -> Any:
        """Execute the rendered query."""
        return super().executemany(_rendered(self.connection, query), *args, **options)  # type: ignore[misc]

    def stream(self, query: Any, *args: Any, **options: Any) -> Any:
        """Execute the rendered query."""
        return super().stream(_rendered(self.connection, query), *args, **options)  # type: ignore[misc]

    def copy(self, statement: Any, *args: Any, **options: Any) -> Any:
        """Begin the rendered COPY."""
        return super().copy(_rendered(self.connection, statement), *args, **options)  # type: ignore[misc]


class RenderingCursor(_Rendering, psycopg.Cursor[Any]):
    """A cursor whose statements are rendered."""


class AsyncRenderingCursor(_Rendering, psycopg.AsyncCursor[Any]):
    """An async cursor whose statements are rendered."""


def _rendered(conn: Any, query: Any) -> Any:
    schema = schema_of(conn)
    match query:
        case bytes():
            return schema.render_bytes(query)
        case str():
            return schema.render(query)
        case sql.Composable():
            return composed(query, schema)
    return query


def composed(query: sql.Composable, schema: SchemaName) -> sql.Composable:
    """Render the parts of a statement that are SQL, and names with a qualifier; values in it stay as they are."""
    match query:
        case sql.Composed():
            return sql.Composed([composed(each, schema) for each in query])
        case sql.SQL():
            return sql.SQL(schema.render(query.as_string(None)))
        case sql.Identifier() if (text := query.as_string(None)).startswith(QUALIFIER):
            return sql.SQL(f"{schema.identifier}.{text.removeprefix(QUALIFIER)}")
    return query
