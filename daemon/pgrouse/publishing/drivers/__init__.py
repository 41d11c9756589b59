"""The connections that `publish` uses.

The driver of a connection is found without importing a driver that is not imported already.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any

from pgrouse.database.connection_schema import schema_of
from pgrouse.database.schema_name import SchemaName
from pgrouse.publishing.drivers.driver import Driver

# By the package and the name of a class, which is one of the bases of the connection's class.
DRIVERS = {
    "psycopg.Connection": "psycopg_driver:Psycopg",
    "psycopg.AsyncConnection": "psycopg_driver:AsyncPsycopg",
    "psycopg.Cursor": "psycopg_driver:psycopg_cursor",
    "psycopg.AsyncCursor": "psycopg_driver:psycopg_cursor",
    "sqlalchemy.Connection": "sqlalchemy_driver:Sqlalchemy",
    "sqlalchemy.Session": "sqlalchemy_driver:sqlalchemy_session",
    "sqlalchemy.scoped_session": "sqlalchemy_driver:sqlalchemy_session",
    "sqlalchemy.AsyncConnection": "sqlalchemy_driver:AsyncSqlalchemy",
    "sqlalchemy.AsyncSession": "sqlalchemy_driver:AsyncSqlalchemySession",
    "sqlalchemy.async_scoped_session": "sqlalchemy_driver:AsyncSqlalchemySession",
    "django.BaseDatabaseWrapper": "django_driver:Django",
    "django.ConnectionProxy": "django_driver:Django",
    "asyncpg.Connection": "asyncpg_driver:Asyncpg",
    "asyncpg.PoolConnectionProxy": "asyncpg_driver:Asyncpg",
    "pgrouse.Driver": "driver:itself",
}


def driver_of(conn: object, caller: str = "publish") -> Driver:
    """Return the driver that executes statements on a connection of the caller.

    Raises:
        TypeError: it is not a known kind of connection; the text names the known kinds.
    """
    driver = find_driver(conn)
    if driver is None:
        raise TypeError(
            f"{caller} needs a psycopg Connection or AsyncConnection, or a connection of SQLAlchemy (Connection, "
            "Session and their async "
            f"kinds), Django or asyncpg, not a {type(conn).__module__}.{type(conn).__qualname__}; "
            "of an engine or a pool take a connection"
        )
    return driver


def find_driver(conn: object, schema: SchemaName | None = None) -> Driver | None:
    """Return the driver; None if the kind of connection is not known. schema: None = see `schema_of`."""
    make = _maker(type(conn).__mro__)
    driver: Driver | None = make and make(conn, schema or schema_of(conn))
    return driver


@lru_cache(maxsize=64)
def _maker(kinds: tuple[type, ...]) -> Any:
    for each in kinds:
        name = DRIVERS.get(f"{each.__module__.partition('.')[0]}.{each.__name__}")
        if name is not None:
            module, _, maker = name.partition(":")
            return getattr(import_module(f"pgrouse.publishing.drivers.{module}"), maker)
    return None
