"""The types of the connections that `publish` takes, for type checkers, without their packages."""

from __future__ import annotations

from typing import Any, Protocol

import psycopg

PsycopgConnection = psycopg.Connection[Any] | psycopg.Cursor[Any]
AsyncPsycopgConnection = psycopg.AsyncConnection[Any] | psycopg.AsyncCursor[Any]


class SqlalchemyConnection(Protocol):
    """A connection or session of SQLAlchemy; async ones match it, too."""

    @property
    def begin_nested(self) -> Any:
        """A method that all of them have."""


class AsyncSqlalchemyConnection(Protocol):
    """An async connection or session of SQLAlchemy."""

    @property
    def begin_nested(self) -> Any:
        """A method that all of them have."""

    @property
    def stream(self) -> Any:
        """A method that only the async ones have."""


class DjangoConnection(Protocol):
    """A connection of Django."""

    @property
    def alias(self) -> Any:
        """Its name in DATABASES."""


class AsyncpgConnection(Protocol):
    """A connection of asyncpg."""

    @property
    def copy_to_table(self) -> Any:
        """A method that it has."""


# Calls on these must be awaited.
AnyAsyncConnection = AsyncPsycopgConnection | AsyncSqlalchemyConnection | AsyncpgConnection
# The kinds that have an async kind come after it: everything that is not awaited belongs to them.
AnyBlockingConnection = PsycopgConnection | SqlalchemyConnection | DjangoConnection
