"""Fixtures of the tests of SQL functions: databases, connections, listeners and background calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from tests.server.emptied import EmptiedDatabase
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Background, Queue


@pytest.fixture(scope="session")
def empty_shared_database(server: Postgres) -> Iterator[Callable[[], Database]]:
    """Empties the one database that most of these tests share."""
    with closing(EmptiedDatabase(server)) as shared:
        yield shared.empty


@pytest.fixture
def database(empty_shared_database: Callable[[], Database]) -> Iterator[Database]:
    """The schema as it is after its installation. A test that changes more than rows and days takes `own_database`."""
    database = empty_shared_database()
    yield database
    database.disconnect()


class SharedConnection:
    """The connection that tests of the shared database use first.

    It stays open between tests, so that the server compiles its functions once.

    A test gets it like a new one: the state of the session is reset, and it is opened again if the previous test
    changed any other state.
    """

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._conn: psycopg.Connection[Any] | None = None

    def take(self) -> psycopg.Connection[Any]:
        """Return the connection, clean."""
        if self._conn is not None and self._is_usable(self._conn):
            self._conn.execute(FORGET)
        else:
            self.close()
            self._conn = psycopg.connect(self.dsn, autocommit=True)
        return self._conn

    def close(self) -> None:
        """Close it."""
        if self._conn is not None:
            self._conn.close()

    def _is_usable(self, conn: psycopg.Connection[Any]) -> bool:
        untouched = (conn.autocommit, conn.isolation_level, conn.read_only, conn.row_factory) == AS_OPENED
        has_handlers = conn._notice_handlers or conn._notify_handlers
        return untouched and not has_handlers and conn.info.transaction_status is TransactionStatus.IDLE


# The rest of DISCARD ALL, except its plans: keeping them is the purpose.
FORGET = (
    "RESET SESSION AUTHORIZATION; RESET ALL; UNLISTEN *; CLOSE ALL; "
    "SELECT pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES"
)
AS_OPENED = (True, None, None, tuple_row)


@pytest.fixture(scope="session")
def shared_connection(empty_shared_database: Callable[[], Database]) -> Iterator[SharedConnection]:
    """The connection that stays open between tests."""
    shared_connection = SharedConnection(empty_shared_database().dsn)
    yield shared_connection
    shared_connection.close()


@pytest.fixture
def db(database: Database, shared_connection: SharedConnection) -> psycopg.Connection[Any]:
    """An autocommit connection to `database`."""
    return shared_connection.take() if database.dsn == shared_connection.dsn else database.connect()


@pytest.fixture
def own_database(server: Postgres) -> Iterator[Database]:
    """A database for this test alone."""
    with server.new_database(template=server.migrated) as database:
        yield database


@pytest.fixture
def own_queue(own_database: Database) -> Queue:
    """The queue of `own_database`: without dead rows of other tests."""
    return Queue(own_database.connect())


@pytest.fixture
def other(database: Database) -> Queue:
    """The same queue through a second connection."""
    return Queue(database.connect())


@pytest.fixture
def third(database: Database) -> Queue:
    """The same queue through a third connection."""
    return Queue(database.connect())


@pytest.fixture
def background(database: Database) -> Iterator[Background]:
    """Calls that run in parallel to the test."""
    background = Background(database.connect())
    yield background
    background.threads.shutdown(wait=True)
