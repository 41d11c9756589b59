"""The block of `ctx.transaction()`.

A handler's own SQL and the completion of its message or batch are in one transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol

import psycopg
from psycopg import AsyncConnection, Connection

from pgrouse.client.call import Call, run, run_async
from pgrouse.client.calls.processing.run import set_progress
from pgrouse.client.message import Message, claim_refs
from pgrouse.handlers.ctx.publish_tracker import Publisher, PublishTracker, tracker_of
from pgrouse.handlers.runtime import HandlerRuntime

ROLLED_BACK = "everything in the transaction was rolled back"
INSIDE_ANOTHER = (
    "ctx.transaction() inside of another block of it, or of the function of ctx.step(transaction=True): "
    "use the connection that is open, "
    "or open the block first and do the steps in it"
)

# Classes of SQLSTATEs after which a commit may have taken place: the connection broke, or the server ended it.
UNKNOWN_END = ("08", "57")


class TransactionContext(Publisher, Protocol):
    """The context that opens a transaction.

    Attributes:
        connection: the connection of the transaction in which the calling code runs, of the handler's kind, or None.
    """

    connection: Any


class Completion(Protocol):
    """The messages that a transaction completes at its end: one message, or a batch."""

    def check_open(self) -> None:
        """Check that it can be completed.

        Raises:
            RuntimeError: it is completed already, or has another outcome.
        """

    def messages(self) -> list[Message]:
        """Return the messages to complete."""

    def outputs(self) -> list[str | None]:
        """Return the outputs to keep, one for each message, as they are stored.

        Raises:
            ValueError: an output cannot be kept.
        """

    def call(self) -> Call[list[int]]:
        """Return the call that completes it, and returns the ids of the lost messages."""

    def check(self, lost: list[int], what_now: str) -> None:
        """Check that nothing was lost; what_now: what to do, for the error.

        Raises:
            LockLost: this worker no longer holds some of its messages.
        """

    def begin(self) -> None:
        """The transaction has begun."""

    def committed(self) -> None:
        """The transaction was committed."""

    def end(self) -> None:
        """The transaction has ended, if it had begun."""


class Transaction:
    """A block that completes the message or batch of its context."""

    def __init__(self, context: TransactionContext, completion: Completion, runtime: HandlerRuntime) -> None:
        self._context, self._completion, self._runtime = context, completion, runtime

    @contextmanager
    def open(self) -> Iterator[Connection]:
        """Open it in a sync handler."""
        completion = self._completion
        self._check_alone()
        completion.check_open()
        try:
            with self._runtime.blocking_pool.connection() as conn, conn.transaction():
                with self._block(conn):
                    yield conn
                if progress := self._progress_at_end():
                    run(conn, progress)
                completion.check(run(conn, completion.call()), ROLLED_BACK)
                self._before_commit()
            completion.committed()
        except psycopg.Error as error:
            self._after_error(error)
            raise
        finally:
            completion.end()

    @asynccontextmanager
    async def open_async(self, tracker: PublishTracker) -> AsyncIterator[AsyncConnection]:
        """Open it in an async handler; tracker: the tracker of the calls of its context."""
        completion = self._completion
        self._check_alone()
        completion.check_open()
        try:
            async with self._runtime.pool.connection() as conn, conn.transaction():
                async with self._async_block(conn, tracker):
                    yield conn
                if progress := self._progress_at_end():
                    await run_async(conn, progress)
                completion.check(await run_async(conn, completion.call()), ROLLED_BACK)
                self._before_commit()
            completion.committed()
        except psycopg.Error as error:
            self._after_error(error)
            raise
        finally:
            completion.end()

    def _before_commit(self) -> None:
        """Until the answer to the commit arrives, only the server knows.

        If a heartbeat finds no lock now, that does not prove a loss.
        """
        self._runtime.mark_completing(*self._completion.messages())

    def _after_error(self, error: psycopg.Error) -> None:
        """If the server refused the commit, the lock can be lost again.

        A deferred constraint is an example of such a refusal.
        """
        if error.sqlstate is not None and error.sqlstate[:2] not in UNKNOWN_END:
            self._runtime.mark_not_completed(*self._completion.messages())

    def _check_alone(self) -> None:
        """Check that the handler's code holds no other connection here: it would hold one and wait for a second one.

        Raises:
            RuntimeError: it does.
        """
        if self._context.connection is not None:
            raise RuntimeError(INSIDE_ANOTHER)

    @contextmanager
    def _block(self, conn: AsyncConnection | Connection) -> Iterator[None]:
        """Keep the steps of this block, and the messages that it publishes, together with it."""
        self._context.connection = conn
        self._completion.begin()
        try:
            yield
        finally:
            self._context.connection = None

    @asynccontextmanager
    async def _async_block(self, conn: AsyncConnection, tracker: PublishTracker) -> AsyncIterator[None]:
        with self._block(conn):
            async with tracker.transaction(conn):
                yield

    def _progress_at_end(self) -> Call[list[int]] | None:
        """Check that the block may complete what it began with.

        Return the call that writes the last progress, if there is any.
        """
        self._completion.check_open()
        if (tracker := tracker_of(self._context)) is not None:
            tracker.raise_if_not_awaited()
        notes = [(each, text) for each in self._completion.messages() if (text := self._runtime.last_progress(each))]
        return set_progress(*claim_refs(each for each, _ in notes), [text for _, text in notes]) if notes else None
