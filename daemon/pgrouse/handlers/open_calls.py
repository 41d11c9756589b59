"""The calls of an async handler that run on the connection of its transaction, including those in tasks.

The transaction ends after them: after its end, the connection may belong to another message.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class OpenCalls:
    """The calls of one context that have begun and have not ended."""

    def __init__(self) -> None:
        # The connection and the task of each call, by the future that its end resolves.
        self._calls: dict[asyncio.Future[None], tuple[Any, asyncio.Task[Any] | None]] = {}
        self._failures: Counter[int] = Counter()

    @contextmanager
    def add(self, conn: Any) -> Iterator[None]:
        """Mark a connection as in use by a call while this block runs, if it is not None."""
        if conn is None:
            yield
            return
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calls[over] = conn, asyncio.current_task()
        try:
            yield
        except BaseException:
            self._failures[id(conn)] += 1
            raise
        finally:
            del self._calls[over]
            over.set_result(None)

    def failures(self, conn: Any) -> int:
        """Return how many calls on a connection have failed."""
        return self._failures[id(conn)]

    def cancel(self, conn: Any) -> None:
        """Cancel the calls that use a connection."""
        for used, task in self._calls.values():
            if used is conn and task is not None:
                task.cancel()

    async def wait(self, conn: Any) -> None:
        """Wait until no call uses a connection."""
        while calls := [over for over, (used, _) in self._calls.items() if used is conn]:
            await asyncio.wait(calls)
