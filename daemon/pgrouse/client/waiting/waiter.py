"""Wait for the ends of any number of messages by one connection (`Waiter`)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any

from pgrouse.client.waiting.message_result import MessageResult
from pgrouse.client.waiting.waiting import SharedWait, Waiting
from pgrouse.config.duration import AnyDuration
from pgrouse.database import schema_name
from pgrouse.process.owner import OwnerProcess


class Waiter:
    """Waits for the ends of messages, for any number of threads and coroutines at once, by one connection.

        with Waiter(dsn) as waiter:
            ending = waiter.wait_for(published, 5)

        async with Waiter(dsn) as waiter:
            ending = await waiter.ended(published, 5)

    The connection is served by a thread, which asks for all messages that may have ended by one statement. It is opened
    again when it breaks; the waits go on. A process needs one, for as long as it runs. A fork of the process opens its
    own.

    Args:
        dsn: a connection string that leads to the server itself: through a pooler no notification arrives; then this
            warns and polls each second.
        schema: that of the queue. None = that of `use_schema` or of the environment, else `messages`.
    """

    def __init__(self, dsn: str, *, schema: str | None = None) -> None:
        self._dsn = dsn
        self._schema = schema_name.current() if schema is None else schema_name.schema_name(schema)
        self._owner: OwnerProcess | None = None
        self._reset()

    def _reset(self) -> None:
        """Be closed; in a fork, without what the other process uses."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: Waiting | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        # Those that are not over. None: nothing is served.
        self._open: set[SharedWait] | None = None

    def wait_for(self, message_id: int, timeout: AnyDuration | None = None) -> MessageResult:
        """Wait in a thread until a message has ended, and return how. Arguments and errors are those of `ended`.

        Raises:
            RuntimeError: this thread runs an event loop, which would stand still: await `ended`.
        """
        refuse_on_event_loop("Waiter.wait_for", "await Waiter.ended()")
        wait = self._begin(message_id, timeout)
        try:
            futures.wait([wait.future], wait.bound_s())
            if not wait.future.done():
                raise wait.expired()
            return wait.future.result()
        finally:
            self._end(wait)

    async def ended(self, message_id: int, timeout: AnyDuration | None = None) -> MessageResult:  # noqa: ASYNC109
        """Wait until a message has ended, and return how.

        A message that is retried has not ended; one that is redriven has, and its successor is another message.

        Args:
            message_id: what publish returned. The publish must be committed.
            timeout: how long to wait at most: a timedelta, seconds, or "5s"; None = as long as it takes. Where
                the server does not answer, this takes 5 s more.

        Raises:
            TimeoutError: it has not ended by then. It goes on; so can the waiting, by another call.
            MessageNotFound: it was never published, or ended and nothing of it is kept.
            ResultForbidden: this role may not know its result.
            RuntimeError: the Waiter is not open, or was closed in the meantime.
            ForkedProcess: this process is a fork of the one that opened it: open it again.
        """
        wait = self._begin(message_id, timeout)
        bound = asyncio.timeout(wait.bound_s())
        try:
            async with bound:
                return await asyncio.wrap_future(wait.future)
        except TimeoutError:
            if bound.expired():
                raise wait.expired() from None
            raise
        finally:
            self._end(wait)

    def open(self) -> None:
        """Connect; done by `with`. A fork of a process may do so too.

        Raises:
            psycopg.Error: no connection could be made.
        """
        if self._thread is not None and self._is_here:
            raise RuntimeError("this Waiter is open already")
        self._reset()
        self._owner = OwnerProcess("Waiter")
        connected: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(connected,), name="pgrouse-waiter", daemon=True)
        self._thread.start()
        try:
            connected.result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all waits with a RuntimeError, and disconnect; done by `with`. In a fork it ends nothing."""
        if not self._is_here:
            return
        thread, self._thread = self._thread, None
        if thread is not None:
            self._call(lambda waiting: waiting.stop())
            thread.join()

    def __enter__(self) -> Waiter:
        refuse_on_event_loop("with Waiter()", "async with Waiter()")
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Waiter:
        opening = asyncio.ensure_future(asyncio.to_thread(self.open))
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(self._close_behind)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    @property
    def _is_here(self) -> bool:
        return self._owner is not None and self._owner.is_here

    def _close_behind(self, opening: asyncio.Future[None]) -> None:
        """Close it when its opening is over, for which no one waits any more."""
        if opening.cancelled() or opening.exception() is None:
            threading.Thread(target=self.close, daemon=True).start()

    def _run(self, connected: Future[None]) -> None:
        try:
            with schema_name.use_schema(self._schema), asyncio.Runner() as runner:
                self._loop, self._waiting = runner.get_loop(), Waiting(self._dsn)
                with self._lock:
                    self._open = set()
                runner.run(self._waiting.run(connected))
        except asyncio.CancelledError:
            if not connected.done():
                connected.set_exception(RuntimeError("this Waiter was closed while it was opened"))
        finally:
            self._fail_all()

    def _fail_all(self) -> None:
        with self._lock:
            left, self._open = self._open or set(), None
        for wait in left:
            if not wait.future.done():
                wait.future.set_exception(RuntimeError(f"the Waiter was closed before message {wait.message_id} ended"))

    def _begin(self, message_id: int, timeout: AnyDuration | None) -> SharedWait:
        wait = SharedWait(message_id, timeout)
        if self._owner is not None:
            self._owner.check()
        with self._lock:
            if self._open is None:
                raise RuntimeError("this Waiter is not open: use `with Waiter(dsn) as waiter`, or `async with`")
            self._open.add(wait)
        self._call(lambda waiting: waiting.add(wait))
        return wait

    def _end(self, wait: SharedWait) -> None:
        with self._lock:
            if self._open is not None:
                self._open.discard(wait)
        self._call(lambda waiting: waiting.discard(wait))

    def _call(self, does: Callable[[Waiting], Any]) -> None:
        if self._loop is not None and self._waiting is not None:
            with suppress(RuntimeError):  # it was closed in the meantime
                self._loop.call_soon_threadsafe(does, self._waiting)


def refuse_on_event_loop(call: str, instead: str) -> None:
    """Refuse a call that would block the event loop of its thread.

    Raises:
        RuntimeError: there is one.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"{call} would block the event loop that runs in this thread: use {instead}")
