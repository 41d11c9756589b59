"""The child processes of a topic. A call that does not return in time ends its process, and only that.

Each process is a pool of the library with a single worker. In a pool with several workers the library may mistake one for another: it sees that
a process died before it reads which call that process had started, then it fails the calls of all others, or waits for that call for ever. And
it may kill a process that has just taken the next call, when the one before ended as its time was over or its caller stopped waiting: a process
gets another call only if the one before returned in time.

A call's time is measured by the monotonic clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from threading import Lock, Thread
from types import SimpleNamespace
from typing import Any

import pebble.pool.process
from pebble import ProcessPool

# The library uses time.time(): changing the machine's clock would end a call that has just started, or never end one that hangs. These
# two functions are all that it uses of `time`.
pebble.pool.process.time = SimpleNamespace(time=time.monotonic, sleep=time.sleep)  # type: ignore[assignment, attr-defined]

# How often a call is checked.
CHECK_INTERVAL_S = 1.0
# Then the process is replaced, which bounds what a handler can leak.
MAX_CALLS = 1000


class ChildPool:
    """Child processes that are started when they are needed: there are as many as calls at the same time.

    Args:
        make: creates a pool of the library with one worker; its process starts with the first call.
    """

    def __init__(self, make: Callable[[], ProcessPool]) -> None:
        self._make = make
        self._children: set[Child] = set()
        self._idle: list[Child] = []

    async def call(self, function: Callable[..., Any], *args: Any, limit_s: float | None) -> Any:
        """Call a function in a process and return its result. Cancelling the call kills the process.

        Args:
            function: can be imported there.
            *args: its arguments.
            limit_s: how long it may take once a process has started it.

        Raises:
            TimeoutError: it took longer.
            ProcessExpired: its process died.
            BrokenProcessPool: its process died before it could report that it had started.
        """
        child = self._idle_child() or self._new_child()
        try:
            return await child.call(function, args, limit_s)
        finally:
            if child.is_reusable:
                self._idle.append(child)
            else:
                self._close(child)

    def _idle_child(self) -> Child | None:
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
            self._close(child)
        return None

    def _new_child(self) -> Child:
        child = Child(self._make())
        self._children.add(child)
        return child

    def _close(self, child: Child) -> None:
        child.start_closing(lambda: self._children.discard(child))

    def close(self) -> None:
        """Kill the processes."""
        children = list(self._children)
        for each in children:
            self._close(each)
        for each in children:
            each.wait_until_closed()


class Child:
    """One process, which makes one call at a time.

    Args:
        pool: a pool of the library with one worker.

    Attributes:
        is_reusable: whether the last call returned in time: the library has then no reason left to kill the process.
    """

    def __init__(self, pool: ProcessPool) -> None:
        self._pool = pool
        self._calls = 0
        self._closing: Thread | None = None
        self._lock = Lock()
        self.is_reusable = False

    @property
    def is_alive(self) -> bool:
        """Whether the process has not been seen to die."""
        return bool(self._pool.active)

    async def call(self, function: Callable[..., Any], args: tuple[Any, ...], limit_s: float | None) -> Any:
        """Call a function in the process, as `ChildPool.call` does."""
        self._calls += 1
        self.is_reusable = False
        began = time.monotonic()
        result = await self._call(function, args, limit_s)
        is_in_time = limit_s is None or time.monotonic() - began < limit_s
        self.is_reusable = is_in_time and self._calls < MAX_CALLS
        return result

    async def _call(self, function: Callable[..., Any], args: tuple[Any, ...], limit_s: float | None) -> Any:
        asked = self._pool.schedule(function, args=args, timeout=limit_s)
        answer = asyncio.wrap_future(asked)
        try:
            while not answer.done():
                await asyncio.wait([answer], timeout=CHECK_INTERVAL_S)
                if not (self.is_alive or asked.done()):
                    raise BrokenProcessPool("the process died with this call in its queue")
            return answer.result()
        finally:
            answer.cancel()

    def start_closing(self, on_closed: Callable[[], object]) -> None:
        """Kill the process in a thread, unless that has begun. Calls end on the event loop, and all children in another thread."""
        with self._lock:
            if self._closing is None:
                self._closing = Thread(target=self._close, args=[on_closed], daemon=True)
                self._closing.start()

    def wait_until_closed(self) -> None:
        """Wait for the end of that thread."""
        if self._closing is not None:
            self._closing.join()

    def _close(self, on_closed: Callable[[], object]) -> None:
        self._pool.stop()  # type: ignore[no-untyped-call]
        self._pool.join()
        on_closed()
