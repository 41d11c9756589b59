"""The pool of processes that a topic's children live in, held to two promises that it does not make by itself.

Every call ends. A pool breaks when its processes die while they have nothing to do, or when no further one can be started: then it tells
those calls that it has taken out of its queue, and no other.
A call's time is counted by a clock that nobody sets.
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

# It measures by time.time(): a machine whose clock is set would end what has just begun, or never what hangs. This is all it uses of `time`.
pebble.pool.process.time = SimpleNamespace(time=time.monotonic, sleep=time.sleep)  # type: ignore[assignment, attr-defined]

# How often a call is looked after.
LOOK_S = 1.0


class ChildPool:
    """A pool that is replaced when it breaks.

    Args:
        make: makes one; its processes start with the first call.
    """

    def __init__(self, make: Callable[[], ProcessPool]) -> None:
        self._make = make
        self._pool = make()

    async def call(self, function: Callable[..., Any], *args: Any, limit_s: float | None) -> Any:
        """Call a function in a process and return what it returns; who stops waiting ends the process.

        Args:
            function: one that can be imported there.
            *args: its arguments.
            limit_s: how long it may take, from when a process takes it up.

        Raises:
            TimeoutError: it took longer.
            ProcessExpired: its process died.
            BrokenProcessPool: the processes died before one could say that it has begun.
        """
        try:
            return await self._call(function, args, limit_s)
        except BrokenProcessPool:
            # What may still run there ends: nobody waits for it.
            self._whole()
            raise

    async def _call(self, function: Callable[..., Any], args: tuple[Any, ...], limit_s: float | None) -> Any:
        pool = self._whole()
        asked = pool.schedule(function, args=args, timeout=limit_s)
        answer = asyncio.wrap_future(asked)
        try:
            while not answer.done():
                await asyncio.wait([answer], timeout=LOOK_S)
                if not (pool.active or asked.done()):
                    raise BrokenProcessPool("the pool broke with this call in its queue")
            return answer.result()
        finally:
            answer.cancel()

    def _whole(self) -> ProcessPool:
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
