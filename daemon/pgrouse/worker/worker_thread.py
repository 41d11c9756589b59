"""A thread with its own event loop, on which a worker runs while the application's code blocks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress

from pgrouse.process.event_loop import new_event_loop
from pgrouse.worker.service import CANCEL_S, LAST_SETTLE_S

# The time after the handlers: the last settles, the last report, and closing the connections.
END_S = CANCEL_S + LAST_SETTLE_S + 15.0


class WorkerThread:
    """The thread of one worker.

    Args:
        start_worker: starts the worker; returns when it processes messages.
        wait: returns when the worker has stopped.
    """

    def __init__(self, start_worker: Callable[[], Awaitable[None]], wait: Callable[[], Awaitable[None]]) -> None:
        self._start_worker, self._wait = start_worker, wait
        self._started: Future[asyncio.AbstractEventLoop] = Future()
        self._ended: Future[None] = Future()
        # The interpreter does not wait for it: a program that ends without stopping its worker ends.
        self._thread = threading.Thread(target=self._run, name="pgrouse worker", daemon=True)

    def start(self) -> None:
        """Start the thread; return when the worker processes messages, or raise the reason why it cannot."""
        self._thread.start()
        self._started.result()

    def stop(self, request: Callable[[], None], timeout_s: float) -> None:
        """Call `request` on the event loop, and wait until the worker has stopped.

        Raises:
            TimeoutError: it has not stopped in time; the thread is left.
            BaseException: the error that ended the worker.
        """
        with suppress(RuntimeError):  # it has ended by itself
            self._started.result().call_soon_threadsafe(request)
        self._ended.result(timeout_s + END_S)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the worker is started or stopped
            self._ended.set_exception(error)
            if not self._started.done():
                self._started.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _work(self) -> None:
        await self._start_worker()
        self._started.set_result(asyncio.get_running_loop())
        await self._wait()
