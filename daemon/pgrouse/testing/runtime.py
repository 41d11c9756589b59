"""The runtime of handlers in a test. All their database work goes through one connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import psycopg

from pgrouse.client.calls.event import SavedEvent
from pgrouse.client.message import Message
from pgrouse.handlers.encryption import NoEncryption
from pgrouse.handlers.event_loop import DONE
from pgrouse.publishing.drivers.driver import Driver, Row
from pgrouse.publishing.statement import Statement


class OtherConnection(Driver):
    """A connection of a test that is not one of psycopg: handlers can publish on it, and do nothing else."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.is_async, self.schema = driver, driver.is_async, driver.schema

    async def fetch_row(self, statement: Statement) -> Row | None:
        """Execute a statement, return its first row."""
        return await self.driver.fetch_row(statement)

    def bulk(self) -> AbstractAsyncContextManager[Driver]:
        """Begin a block that is done as a whole or not at all."""
        return self.driver.bulk()

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(
            "ctx.transaction() and ctx.step() use a connection of psycopg, and the connection of this test is of "
            "another driver: no session but this one sees its transaction. Give drain() a connection of psycopg, or a "
            "connection string; ctx.publish() and ctx.complete(connection) work here"
        )


AnyConnection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
TestConnection = AnyConnection | OtherConnection


class TestRuntime:
    """The runtime of handlers in a test.

    Args:
        conn: the test's connection; None = there is none, and handlers get an error that says so.
        dsn: the database that handlers of the other kind connect to; None = they cannot.
        resources: the resources that handlers share, as a lifespan yields them.
        given_events: the events of the message; None = those in the database.

    Attributes:
        done: the ids of messages that handlers completed with `ctx.transaction()` or `ctx.complete()`.
        completing: messages that handlers may have completed in a transaction whose end is not known, by id.
    """

    __test__ = False  # pytest collects classes with such a name
    stopping = False
    encryption = NoEncryption()
    web_url = "https://pgrouse.example"

    def __init__(
        self,
        conn: TestConnection | None,
        dsn: str | None = None,
        resources: Any = None,
        given_events: Sequence[SavedEvent] | None = None,
    ) -> None:
        self.conn, self.dsn, self.resources, self.given_events = conn, dsn, resources, given_events
        self.done: set[int] = set()
        self.completing: dict[int, Message] = {}
        self._progress: dict[int, str] = {}

    @property
    def pool(self) -> AsyncTestPool:
        """The pool of async handlers."""
        if is_async(self.conn) or self.dsn is not None:
            return AsyncTestPool(self.conn, self.dsn)
        raise RuntimeError(_missing_connection(self.conn, "an async handler", "psycopg.AsyncConnection"))

    @property
    def blocking_pool(self) -> BlockingTestPool:
        """The pool of handlers in threads."""
        if is_blocking(self.conn) or self.dsn is not None:
            return BlockingTestPool(self.conn, self.dsn)
        raise RuntimeError(_missing_connection(self.conn, "a sync handler", "psycopg.Connection"))

    def holds(self, message: Message) -> bool:
        """Return True: no other worker exists."""
        return True

    def cancelled(self, message: Message) -> bool:
        """Return False: nothing cancels a message here."""
        return False

    def mark_completing(self, *messages: Message) -> None:
        """Record that the handler completes these messages in its own transaction."""
        self.completing |= {message.id: message for message in messages}

    def mark_not_completed(self, *messages: Message) -> None:
        """Forget that: the transaction was not committed."""
        for message in messages:
            self.completing.pop(message.id, None)

    def note_progress(self, message: Message, text: str) -> None:
        """Store the progress."""
        self._progress[message.id] = text

    def last_progress(self, message: Message) -> str | None:
        """Return the stored progress."""
        return self._progress.get(message.id)

    def extend(self, message: Message, lock_duration: timedelta) -> Awaitable[None]:
        """Do nothing: no lock expires here."""
        return DONE

    def completed(self, *messages: Message) -> None:
        """Record that these messages are settled."""
        self.done.update(message.id for message in messages)
        for message in messages:
            self.completing.pop(message.id, None)


class BlockingTestPool:
    """A pool with the test's connection, or with a new connection for the handler.

    On the test's connection transactions are savepoints.
    """

    def __init__(self, conn: Any, dsn: str | None) -> None:
        self._conn, self._dsn = conn, dsn

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """Yield the connection."""
        if is_blocking(self._conn):
            yield self._conn
        else:
            with psycopg.connect(self._dsn or "", autocommit=True, client_encoding="utf8") as conn:
                yield conn


class AsyncTestPool:
    """The same, for async handlers."""

    def __init__(self, conn: Any, dsn: str | None) -> None:
        self._conn, self._dsn = conn, dsn

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Yield the connection."""
        if is_async(self._conn):
            yield self._conn
        else:
            async with await psycopg.AsyncConnection.connect(
                self._dsn or "", autocommit=True, client_encoding="utf8"
            ) as conn:
                yield conn


def is_async(conn: object) -> bool:
    """Whether calls on a connection of a test must be awaited."""
    return isinstance(conn, psycopg.AsyncConnection) or (isinstance(conn, OtherConnection) and conn.is_async)


def is_blocking(conn: object) -> bool:
    """Whether calls on a connection of a test wait for their result."""
    return isinstance(conn, psycopg.Connection) or (isinstance(conn, OtherConnection) and not conn.is_async)


def _missing_connection(conn: object, handler: str, kind: str) -> str:
    if conn is None:
        return "this handler uses the database, but perform() got no connection: pass conn=..., or use drain()"
    return f"{handler} that uses the database needs a {kind}, but the test passed a {type(conn).__qualname__}"
