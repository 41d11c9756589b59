"""The child processes of a topic: as many as there are concurrent calls.

A call that does not return ends only its own process.
"""

from __future__ import annotations

import asyncio
import atexit
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pgrouse.process.owner import OwnerProcess
from pgrouse.worker.child.child import Child
from pgrouse.worker.child.child_link import STOPPED, TERMINATE_S, ChildDied, ChildGone

# After this many calls a process is replaced, which bounds what a handler can leak.
MAX_CALLS = 1000
# For all processes together: each is asked to end, and is killed after TERMINATE_S.
CLOSE_S = TERMINATE_S + 2


class ChildPool:
    """Child processes that start when they are needed.

    Args:
        initialize: called in each process first; can be imported there. If it returns a function, the process calls
            that when it ends by itself.
        inherited: descriptors that each process gets too, under the same numbers.
    """

    def __init__(self, initialize: Callable[[], object], inherited: tuple[int, ...] = ()) -> None:
        self._initialize, self._inherited = initialize, inherited
        self._children: list[Child] = []
        self._idle: list[Child] = []
        self._is_closed = False
        self._owner = OwnerProcess("pool of child processes")
        # At its end, the interpreter waits for processes that still run.
        atexit.register(self.close)

    async def call(self, function: Callable[..., Any], *args: Any, limit_s: float | None) -> Any:
        """Call a function in a process and return its result. Cancelling the call kills the process.

        Args:
            function: can be imported there.
            *args: its arguments.
            limit_s: how long it may take once a process has started it.

        Raises:
            TimeoutError: it took longer.
            ChildDied: its process ended before it returned.
            RuntimeError: it raised an exception, or its result cannot be pickled.
        """
        while self._idle:
            with suppress(ChildGone):
                return await self._call(self._idle.pop(), function, args, limit_s)
        return await self._call(self._new_child(), function, args, limit_s)

    async def _call(
        self, child: Child, function: Callable[..., Any], args: tuple[Any, ...], limit_s: float | None
    ) -> Any:
        is_reusable = False
        try:
            value = await asyncio.wrap_future(child.call(function, args, limit_s))
            is_reusable = child.calls < MAX_CALLS
            return value
        finally:
            if is_reusable:
                self._idle.append(child)
            else:
                child.stop()

    def _new_child(self) -> Child:
        if self._is_closed:
            raise ChildDied(STOPPED)
        child = Child(self._initialize, self._inherited)
        self._children = [*(each for each in self._children if not each.is_over), child]
        # Another thread may have closed the pool before this process was in its list.
        if self._is_closed:
            child.stop()
        return child

    def close(self) -> None:
        """End the processes, and start no more. A fork leaves them, also when it ends."""
        self._is_closed = True
        atexit.unregister(self.close)
        if not self._owner.is_here:
            return
        children = self._children
        for each in children:
            each.stop()
        until = time.monotonic() + CLOSE_S
        for each in children:
            each.join(max(until - time.monotonic(), 0))
