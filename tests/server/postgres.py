"""The servers that the tests run on, and the databases of each test."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from datetime import time as datetime_time
from functools import cached_property
from itertools import count
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from pgrouse.database import connection_schema, schema_name
from pgrouse.database.install import schema
from pgrouse.devdb.sessions import end_sessions

CRON_DATABASE = "pgrouse_cron"
TEMPLATE = "pgrouse_template"
LAST_MOMENT = datetime_time(23, 59, 50)
_numbers = count(1)


def archive_day() -> date:
    """Return the day of the archive's partitions.

    Shortly before midnight it waits for the next day: no test should run over midnight.
    """
    while (now := datetime.now(UTC)).time() >= LAST_MOMENT:
        time.sleep(0.1)
    return now.date()


class Postgres:
    """A running server as tests see it.

    Attributes:
        name: its name in `--pg`.
        pg_cron: the version of its pg_cron, None if it has none.
        cron_database: the database in which pg_cron keeps its jobs.
        place: what runs it; the `devdb.PrivateServer` of a `private_server` can be stopped, crashed, killed and
            started.
    """

    def __init__(self, name: str, place: Any, *, migrated_on: date | None = None) -> None:
        self.name = name
        self.place = place
        self.pg_cron: str | None = place.pg_cron
        self.cron_database = CRON_DATABASE
        self._maintenance: psycopg.Connection[Any] | None = None
        self._migrated_on = migrated_on

    @cached_property
    def version(self) -> int:
        """The major version."""
        with self.admin() as conn:
            return conn.info.server_version // 10000

    def dsn(self, dbname: str = "postgres", user: str = "postgres", **options: str) -> str:
        """Return a connection string."""
        return str(self.place.dsn(dbname, user, **options))

    def admin(self, dbname: str = "postgres") -> psycopg.Connection[Any]:
        """Return a new autocommit connection as superuser. As a context manager it closes itself."""
        conn = psycopg.connect(self.dsn(dbname), autocommit=True)
        return connection_schema.use(conn, schema_name.current())

    @contextmanager
    def new_database(self, template: str | None = None) -> Iterator[Database]:
        """Create a database, empty or a copy of `template`, and drop it at the end, even with open connections."""
        database = Database(self, f"test_{next(_numbers)}")
        self._create(database.name, template or "template1")
        try:
            yield database
        finally:
            database.disconnect()
            self._drop(database.name)

    @property
    def migrated(self) -> str:
        """The name of a database with the schema installed today, to copy from.

        Created at its first use of a day: the archive has days.
        """
        self.migrated_today()
        return TEMPLATE

    def migrated_today(self) -> date:
        """Make the database to copy from, unless it was made today, and return the day."""
        today = archive_day()
        if self._migrated_on != today:
            self._drop(TEMPLATE)
            self._create(TEMPLATE, "template1")
            with self.admin(TEMPLATE) as conn:
                schema.migrate(conn)
            self._maintain("ALTER DATABASE {} ALLOW_CONNECTIONS false", TEMPLATE)
            self._migrated_on = today
        return today

    def close(self) -> None:
        """Close the connection that databases are made and dropped with."""
        if self._maintenance is not None:
            self._maintenance.close()

    def _create(self, name: str, template: str) -> None:
        # Without flushes its two checkpoints are cheap: 10 ms; with compressed WAL the other strategy takes 150.
        self._maintain("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy", name, template)

    def _drop(self, name: str) -> None:
        end_sessions(self._maintain("SELECT"), name)
        self._maintain("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def _maintain(self, statement: LiteralString, *names: str) -> psycopg.Connection[Any]:
        """Run a statement on the connection for maintenance, and return that connection.

        It is a new one after a restart of the server.
        """
        query = sql.SQL(statement).format(*map(sql.Identifier, names))
        try:
            self._maintenance = self._maintenance or self.admin()
            self._maintenance.execute(query)
        except psycopg.OperationalError:
            self.close()
            self._maintenance = self.admin()
            self._maintenance.execute(query)
        return self._maintenance


@dataclass
class Database:
    """A database of one test."""

    server: Postgres
    name: str
    _connections: list[psycopg.Connection[Any]] = field(default_factory=list)

    @property
    def dsn(self) -> str:
        """The connection string of the superuser."""
        return self.server.dsn(self.name)

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """Return a new connection, in autocommit by default, that is closed when the test ends.

        In a block of `use_schema`, and with PGROUSE_DATABASE__SCHEMA, its statements are rendered.
        """
        conn = psycopg.connect(self.dsn, **{"autocommit": True, **options})
        self._connections.append(conn)
        return connection_schema.use(conn, schema_name.current())

    @contextmanager
    def held_snapshot(self) -> Iterator[None]:
        """Keep vacuum from removing anything, as a long report or a backup does."""
        conn = self.connect()
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with conn.transaction():
            conn.execute("SELECT count(*) FROM messages.message")
            yield

    def disconnect(self) -> None:
        """Close all connections that `connect` made."""
        for conn in self._connections:
            conn.close()
