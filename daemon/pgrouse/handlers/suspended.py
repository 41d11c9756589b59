"""A coroutine whose first step ran without a task, and which is awaited from there on."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any


class Suspended:
    """A coroutine that waits. Await it once, in the task that ran its first step.

    Args:
        coroutine: it has yielded once.
        awaited: what it yielded: the future that it waits for, as a task expects it.
        began: when its first step began, by the monotonic clock.
    """

    __slots__ = ("_awaited", "_coroutine", "began")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], awaited: Any, began: float) -> None:
        self._coroutine, self._awaited, self.began = coroutine, awaited, began

    def __await__(self) -> Generator[Any, Any, Any]:
        # `await coroutine` would run another step, before the task has seen what the first one waits for.
        coroutine, awaited = self._coroutine, self._awaited
        while True:
            try:
                yield awaited
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:  # noqa: BLE001 - any exception of the task belongs to the coroutine
                try:
                    awaited = coroutine.throw(error)
                except StopIteration as end:
                    return end.value
            else:
                return (yield from coroutine.__await__())


async def wait_for(awaitable: Any) -> Any:
    """Return the result of any awaitable, as a coroutine."""
    return await awaitable
