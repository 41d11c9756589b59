"""The child processes of a topic: as many as there are calls at the same time. A call that does not return ends its process, and only that."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from pgrouse.worker.child import STOPPED, TERMINATE_S, Child, ChildDied

# Then a process is replaced, which bounds what a handler can leak.
MAX_CALLS = 1000
# For all processes together: each is asked to end, and killed after TERMINATE_S.
CLOSE_S = TERMINATE_S + 2


class ChildPool:
    """Child processes that start when they are needed.

    Args:
        initialize: called in each process first; can be imported there.
    """

    def __init__(self, initialize: Callable[[], object]) -> None:
        self._initialize = initialize
        self._children: list[Child] = []
        self._idle: list[Child] = []
        self._is_closed = False
        # The interpreter waits for processes that still run at its end.
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
        child, result = self._give(function, args, limit_s)
        is_reusable = False
        try:
            value = await asyncio.wrap_future(result)
            is_reusable = child.calls < MAX_CALLS
            return value
        finally:
            if is_reusable:
                self._idle.append(child)
            else:
                child.stop()

    def _give(
        self, function: Callable[..., Any], args: tuple[Any, ...], limit_s: float | None
    ) -> tuple[Child, Future[Any]]:
        while self._idle:
            child = self._idle.pop()
            try:
                return child, child.call(function, args, limit_s)
            except ChildDied:
                continue
        child = self._new_child()
        return child, child.call(function, args, limit_s)

    def _new_child(self) -> Child:
        if self._is_closed:
            raise ChildDied(STOPPED)
        child = Child(self._initialize)
        self._children = [*(each for each in self._children if not each.is_over), child]
        return child

    def close(self) -> None:
        """End the processes; no other one starts."""
        self._is_closed = True
        atexit.unregister(self.close)
        children = self._children
        for each in children:
            each.stop()
        for each in children:
            each.join(CLOSE_S)
