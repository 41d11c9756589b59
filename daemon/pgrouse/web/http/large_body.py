"""Reads large requests in threads, a few at once, so that other requests are answered at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from pgrouse.web.http.problem import Problem

P = ParamSpec("P")
T = TypeVar("T")

# A smaller body is read sooner than a thread begins.
LARGE_BYTES = 262_144
# More would only share the interpreter, and each holds many times its request in memory.
MAX_AT_ONCE = 2
# A body that is not being read after this time is refused.
WAIT_S = 10.0


class LargeBodyReader:
    """The large requests of one web server."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(MAX_AT_ONCE)

    async def run(self, size: int, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `do` returns: it reads a request of `size` bytes, and waits for nothing.

        Raises:
            Problem: 503, too many large ones came at the same time.
        """
        if size <= LARGE_BYTES:
            return do(*args, **kwargs)
        try:
            async with asyncio.timeout(WAIT_S):
                await self._places.acquire()
        except TimeoutError:
            raise Problem(
                503, "too many large requests at the same time: try again", "too_many_large", {"Retry-After": "2"}
            ) from None
        try:
            return await asyncio.to_thread(do, *args, **kwargs)
        finally:
            self._places.release()
