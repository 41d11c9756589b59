"""What the handlers of one daemon need from it at run time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from pgrouse.client.call import run_async
from pgrouse.client.calls.event import SavedEvent, load_events
from pgrouse.client.calls.processing.settle import complete
from pgrouse.client.connection.database import Database
from pgrouse.client.message import Message, claim_refs
from pgrouse.errors import LockLost
from pgrouse.handlers.ctx.step import AsyncStepConnection, ask
from pgrouse.handlers.encryption import Encryption
from pgrouse.handlers.event_loop import DONE, is_on_event_loop
from pgrouse.process.backoff import FailureLog, backoff_s
from pgrouse.process.new_thread import call_in_new_thread
from pgrouse.process.owner import OwnerProcess
from pgrouse.worker.execution.in_flight import InFlight
from pgrouse.worker.reporting.metrics_recorder import AttemptResult, MetricsRecorder

# How long a handler's start waits for the completion of its message. It takes milliseconds unless the connection is
# dead.
COMPLETE_TIMEOUT_S = 15.0
# How long the pools wait for connections that they are opening.
CLOSE_POOL_S = 1.0


class DaemonRuntime:
    """The runtime of handlers in a daemon.

    Args:
        metrics: records the messages that a handler completes in its own transaction.
        encryption: encrypts the outputs of such transactions.
        web_url: the address of the web server, if it is known.

    Attributes:
        stopping: whether the daemon is shutting down.
        resources: what the lifespan yielded.
    """

    given_events = None

    def __init__(
        self,
        db: Database,
        in_flight: InFlight,
        metrics: MetricsRecorder,
        encryption: Encryption,
        web_url: str | None = None,
    ) -> None:
        self.stopping = False
        self.web_url = web_url
        self.resources: Any = None
        self.encryption = encryption
        self.metrics = metrics
        self._pool, self._blocking_pool = db.pool(), db.blocking_pool()
        self._owner = OwnerProcess("handler's context")
        self._in_flight = in_flight
        # One log for all messages: an outage is one event, whatever the number of messages that wait for its end.
        self._ack_first_failures = FailureLog("ack_first")

    @property
    def pool(self) -> AsyncConnectionPool:
        """Connections for async handlers; not for a process that a handler forked."""
        self._owner.check()
        return self._pool

    @property
    def blocking_pool(self) -> ConnectionPool:
        """Connections for handlers in threads; not for a process that a handler forked."""
        self._owner.check()
        return self._blocking_pool

    def holds(self, message: Message) -> bool:
        """Whether the message is still this worker's: in flight under this claim, and not cancelled."""
        # The heartbeat's thread marks a cancelled message before the event loop removes it.
        return self._in_flight.holds(message) and not self._in_flight.is_cancelled(message)

    def completed(self, *messages: Message) -> None:
        """The transaction that completed these messages is committed.

        Nothing remains to settle, and their lost locks do not count as lost. Thread-safe.
        """
        # A message that is reported twice is counted once.
        held = [message for message in messages if self._in_flight.holds(message)]
        self._in_flight.remove(held)
        self.metrics.record_end(held, AttemptResult.SUCCESS)

    def mark_completing(self, *messages: Message) -> None:
        """A handler is about to complete these messages in its own transaction. Thread-safe."""
        self._in_flight.mark_completing(messages)

    def mark_not_completed(self, *messages: Message) -> None:
        """The server refused the commit. Thread-safe."""
        self._in_flight.mark_not_completed(messages)

    def cancelled(self, message: Message) -> bool:
        """Whether the message was cancelled."""
        return self._in_flight.is_cancelled(message)

    def note_progress(self, message: Message, text: str) -> None:
        """Remember the progress of a message that is in flight. Thread-safe."""
        if self._in_flight.holds(message):
            self._in_flight.progress.note(message, text)
        if not self._in_flight.holds(message):
            # The message was removed in the meantime: nothing else would delete the note.
            self._in_flight.progress.forget(message)

    def last_progress(self, message: Message) -> str | None:
        """Return the last progress of a message."""
        return self._in_flight.progress.last(message)

    def extend(self, message: Message, lock_duration: timedelta) -> Awaitable[None]:
        """Ask the heartbeat to extend the message's lock.

        On the event loop the caller awaits the result; in a thread this call waits.
        """
        self._owner.check()
        if is_on_event_loop():
            return asyncio.wrap_future(self._in_flight.extend(message, lock_duration))
        # Do not keep the future in a variable: an exception that it raises has this frame in its traceback.
        self._in_flight.extend(message, lock_duration).result()
        return DONE

    async def load_events(self, message: Message) -> list[SavedEvent]:
        """Return the events that a message has got; none if it was lost. Tries until the database answers."""
        access = AsyncStepConnection(self.pool)
        try:
            return await ask(message, self, access, None, load_events(message.id, message.claim_id))
        except LockLost:
            return []

    async def complete_first(self, messages: Sequence[Message]) -> list[int]:
        """Complete messages before their handler runs; return the ids of those whose lock was lost.

        Tries until the database answers.
        """
        failures = 0
        while True:
            try:
                async with asyncio.timeout(COMPLETE_TIMEOUT_S), self.pool.connection() as conn:
                    lost = await run_async(conn, complete(*claim_refs(messages)))
            except (psycopg.OperationalError, TimeoutError) as error:
                failures += 1
                self._ack_first_failures.failed(error)
                await asyncio.sleep(backoff_s(failures))
            else:
                self._ack_first_failures.recovered()
                gone = [message for message in messages if message.id in lost]
                self._in_flight.remove(gone)
                self.metrics.record_end(gone, AttemptResult.LOST)
                self.completed(*messages)
                return lost

    async def __aenter__(self) -> DaemonRuntime:
        await self._pool.open()
        self._blocking_pool.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        # Running handlers were stopped and waited for already; this does not wait again.
        await asyncio.gather(
            self._pool.close(timeout=CLOSE_POOL_S),
            call_in_new_thread(partial(self._blocking_pool.close, timeout=CLOSE_POOL_S)),
        )
