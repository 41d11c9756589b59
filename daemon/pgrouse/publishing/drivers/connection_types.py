"""The types of the connections that `publish` takes, as type checkers see them, without their packages."""

from __future__ import annotations

from typing import Any, Protocol

import psycopg

PsycopgConnection = psycopg.Connection[Any] | psycopg.Cursor[Any]
AsyncPsycopgConnection = psycopg.AsyncConnection[Any] | psycopg.AsyncCursor[Any]


class SqlalchemyConnection(Protocol):
    """A connection or session of SQLAlchemy; the async ones too, as far as this goes."""

    @property
    def begin_nested(self) -> Any:
        """As all of them have."""


class AsyncSqlalchemyConnection(Protocol):
    """An async connection or session of SQLAlchemy."""

    @property
    def begin_nested(self) -> Any:
        """As all of them have."""

    @property
    def stream(self) -> Any:
        """As only the async ones have."""


class DjangoConnection(Protocol):
    """A connection of Django."""

    @property
    def alias(self) -> Any:
        """Its name in DATABASES."""


class AsyncpgConnection(Protocol):
    """A connection of asyncpg."""

    @property
    def copy_to_table(self) -> Any:
        """As it has."""


# What is done on these is to be awaited.
AnyAsyncConnection = AsyncPsycopgConnection | AsyncSqlalchemyConnection | AsyncpgConnection
# Those that have an async kind come after it: whatever is not awaited is theirs.
AnyBlockingConnection = PsycopgConnection | SqlalchemyConnection | DjangoConnection
