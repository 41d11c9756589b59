"""The types of the connections that `publish` takes, as type checkers see them, without their packages."""

from __future__ import annotations

from typing import Any, Protocol

import psycopg

OfPsycopg = psycopg.Connection[Any] | psycopg.Cursor[Any]
OfAsyncPsycopg = psycopg.AsyncConnection[Any] | psycopg.AsyncCursor[Any]


class OfSqlalchemy(Protocol):
    """A connection or session of SQLAlchemy, async or not."""

    @property
    def begin_nested(self) -> Any:
        """As all of them have."""


class OfDjango(Protocol):
    """A connection of Django."""

    @property
    def alias(self) -> Any:
        """Its name in DATABASES."""


class OfAsyncpg(Protocol):
    """A connection of asyncpg."""

    @property
    def copy_to_table(self) -> Any:
        """As it has."""


OfOthers = OfSqlalchemy | OfDjango | OfAsyncpg
