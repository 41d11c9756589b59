"""The surroundings of handlers in a test: what `Scene` is in a daemon. All that a handler does in the database goes through one connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import psycopg

from pgrouse.handlers.context import NOTHING
from pgrouse.client.message import Message
from pgrouse.handlers.step import Steps

AnyConnection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]


class Stage:
    """The surroundings.

    Args:
        conn: the test's connection; None = there is none, and handlers get an error that says so.
        dsn: where handlers of the other kind connect to; None = they cannot.

    Attributes:
        done: the ids of messages that handlers completed themselves, by `ctx.transaction()`.
    """

    stopping = False
    seals = None

    def __init__(self, conn: AnyConnection | None, dsn: str | None = None) -> None:
        self.conn, self.dsn = conn, dsn
        self.done: set[int] = set()
        self._progress: dict[int, str] = {}

    @property
    def pool(self) -> AsyncPool:
        """What async handlers take a connection of."""
        if isinstance(self.conn, psycopg.AsyncConnection) or self.dsn is not None:
            return AsyncPool(self.conn, self.dsn)
        raise RuntimeError(_lacking(self.conn, "an async handler", "psycopg.AsyncConnection"))

    @property
    def blocking_pool(self) -> BlockingPool:
        """What handlers in threads take a connection of."""
        if isinstance(self.conn, psycopg.Connection) or self.dsn is not None:
            return BlockingPool(self.conn, self.dsn)
        raise RuntimeError(_lacking(self.conn, "a sync handler", "psycopg.Connection"))

    def holds(self, message: Message) -> bool:
        """It does: nobody else is there."""
        return True

    def cancelled(self, message: Message) -> bool:
        """Nobody cancels it."""
        return False

    def note_progress(self, message: Message, text: str) -> None:
        """Keep what was noted last."""
        self._progress[message.id] = text

    def last_progress(self, message: Message) -> str | None:
        """Return what was noted last."""
        return self._progress.get(message.id)

    def extend(self, message: Message, lock_for: timedelta) -> Awaitable[None]:
        """No lock runs out meanwhile."""
        return NOTHING

    def output(self, message: Message, text: str | None) -> str | None:
        """Keep an output as it is."""
        return text

    def opened(self, message: Message, text: str) -> str:
        """It is as it was."""
        return text

    def steps(self, message: Message) -> Steps:
        """Return the steps of a message."""
        return Steps(message, self)  # type: ignore[arg-type]

    def completed(self, *messages: Message) -> None:
        """Note that nothing is left to settle."""
        self.done.update(message.id for message in messages)


class BlockingPool:
    """What looks like a pool: the test's connection, where what is begun is a savepoint, or one that is made for the handler."""

    def __init__(self, conn: AnyConnection | None, dsn: str | None) -> None:
        self._conn, self._dsn = conn, dsn

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """Give it."""
        if isinstance(self._conn, psycopg.Connection):
            yield self._conn
        else:
            with psycopg.connect(self._dsn or "", autocommit=True) as conn:
                yield conn


class AsyncPool:
    """The same, for async handlers."""

    def __init__(self, conn: AnyConnection | None, dsn: str | None) -> None:
        self._conn, self._dsn = conn, dsn

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Give it."""
        if isinstance(self._conn, psycopg.AsyncConnection):
            yield self._conn
        else:
            async with await psycopg.AsyncConnection.connect(self._dsn or "", autocommit=True) as conn:
                yield conn


def _lacking(conn: object, handler: str, kind: str) -> str:
    if conn is None:
        return "this handler works in the database, and perform() was given no connection: give it conn=..., or use drain()"
    return f"{handler} that works in the database needs a {kind}, and the test gave a {type(conn).__qualname__}"
