"""The process pool of a topic's children, with two guarantees that the library does not give.

Every call ends. A pool breaks when its processes die while they are idle, or when no further process can be started; the library then fails
only the calls that it had taken out of its queue.
A call's time is measured by the monotonic clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pebble.pool.process
from pebble import ProcessPool

# The library uses time.time(): changing the machine's clock would end a call that has just started, or never end one that hangs. These
# two functions are all that it uses of `time`.
pebble.pool.process.time = SimpleNamespace(time=time.monotonic, sleep=time.sleep)  # type: ignore[assignment, attr-defined]

# How often a call is checked.
CHECK_INTERVAL_S = 1.0


class ChildPool:
    """A pool that is replaced when it breaks.

    Args:
        make: creates a pool; its processes start with the first call.
    """

    def __init__(self, make: Callable[[], ProcessPool]) -> None:
        self._make = make
        self._pool = make()

    async def call(self, function: Callable[..., Any], *args: Any, limit_s: float | None) -> Any:
        """Call a function in a process and return its result. Cancelling the call kills the process.

        Args:
            function: can be imported there.
            *args: its arguments.
            limit_s: how long it may take once a process has started it.

        Raises:
            TimeoutError: it took longer.
            ProcessExpired: its process died.
            BrokenProcessPool: the processes died before one could report that it had started.
        """
        try:
            return await self._call(function, args, limit_s)
        except BrokenProcessPool:
            # Anything that still runs there is killed: nothing waits for it.
            self._working_pool()
            raise

    async def _call(self, function: Callable[..., Any], args: tuple[Any, ...], limit_s: float | None) -> Any:
        pool = self._working_pool()
        asked = pool.schedule(function, args=args, timeout=limit_s)
        answer = asyncio.wrap_future(asked)
        try:
            while not answer.done():
                await asyncio.wait([answer], timeout=CHECK_INTERVAL_S)
                if not (pool.active or asked.done()):
                    raise BrokenProcessPool("the pool broke with this call in its queue")
            return answer.result()
        finally:
            answer.cancel()

    def _working_pool(self) -> ProcessPool:
        if not self._pool.active:
            broken, self._pool = self._pool, self._make()
            Thread(target=_close, args=[broken], daemon=True).start()
        return self._pool

    def close(self) -> None:
        """Kill the processes."""
        _close(self._pool)


def _close(pool: ProcessPool) -> None:
    pool.stop()  # type: ignore[no-untyped-call]
    pool.join()
