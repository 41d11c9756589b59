"""Calls the user's hooks for failures, one after the other, without delaying the handlers."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from pgrouse.client.processing.settlement import Settlement
from pgrouse.handlers.declaration.failure import FAILURES, Failure, Hook, to_failure
from pgrouse.logging import events
from pgrouse.logging.event_logger import log

# How many failures may wait for the hooks; further failures are not reported to them.
MAX_WAITING = 1000
# How long one call may take.
CALL_S = 10.0


class FailureHooks:
    """The hooks of one daemon.

    Args:
        on_failure: called for every failed attempt.
        on_death: called for failed attempts after which no other attempt follows.
        resources: returns what `Failure.resources` is.
    """

    def __init__(self, on_failure: Sequence[Hook], on_death: Sequence[Hook], resources: Callable[[], Any]) -> None:
        self._on_failure, self._on_death, self._resources = on_failure, on_death, resources
        self._waiting: deque[tuple[Hook, Failure, contextvars.Context]] = deque()
        self._dropped = 0
        self._task: asyncio.Task[None] | None = None
        # Not the context of the attempt whose failure starts the task: the task also reports failures of other
        # attempts.
        self._context = contextvars.copy_context()

    def report(self, settlements: Iterable[Settlement]) -> None:
        """Report the failures among these attempts; the hooks are called later, in the context of the attempt."""
        for each in settlements:
            if each.kind in FAILURES:
                self._add(to_failure(each, self._resources()))

    def _add(self, failure: Failure) -> None:
        hooks = [*self._on_failure, *(self._on_death if failure.is_last else ())]
        if len(self._waiting) + len(hooks) > MAX_WAITING:
            self._dropped += 1
            return
        self._waiting += [(hook, failure, contextvars.copy_context()) for hook in hooks]
        if hooks and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._work(), name="hooks", context=self._context.copy())

    async def close(self, timeout_s: float) -> None:
        """Wait until all hooks were called, at most this long."""
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=timeout_s)
            self._task.cancel()
        self._dropped += len(self._waiting)
        self._log_dropped()

    async def _work(self) -> None:
        while self._waiting:
            (name, hook), failure, context = self._waiting.popleft()
            try:
                async with asyncio.timeout(CALL_S):
                    await _call(hook, failure, context)
            except Exception:  # noqa: BLE001 - logged in the context of the attempt
                keys = {"message_id": failure.message_id, "topic": failure.topic, "attempt": failure.attempt}
                context.run(partial(log.exception, events.HOOK_FAILED, hook=name, **keys))
        self._log_dropped()

    def _log_dropped(self) -> None:
        if self._dropped:
            log.warning(events.HOOKS_SKIPPED, failures=self._dropped)
        self._dropped = 0


async def _call(hook: Callable[[Failure], Any], failure: Failure, context: contextvars.Context) -> None:
    if inspect.iscoroutinefunction(hook):
        await asyncio.get_running_loop().create_task(hook(failure), context=context)
        return
    await asyncio.get_running_loop().run_in_executor(None, context.run, hook, failure)
