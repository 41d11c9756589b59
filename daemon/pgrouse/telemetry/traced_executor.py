"""The crew and the batches of a daemon that tells of its work: each attempt in its span, which its handler sees as the current one."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from structlog.contextvars import bound_contextvars

from pgrouse.worker.batch_runner import Batches, Run
from pgrouse.worker.executor import Crew
from pgrouse.worker.stop_reason import Why
from pgrouse.client.message import Message
from pgrouse.handlers.outcome import Ended
from pgrouse.telemetry import names
from pgrouse.telemetry.telemetry import Telemetry
from pgrouse.publishing.trace_context import log_keys

P = ParamSpec("P")
T = TypeVar("T")


class Threads(ThreadPoolExecutor):
    """Threads whose calls see the span that was current when they were asked for."""

    def submit(self, call: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> Future[T]:
        """Call it in a thread, within a copy of the context of now."""
        return super().submit(contextvars.copy_context().run, call, *args, **named)  # type: ignore[arg-type]


class TracedCrew(Crew):
    """A crew whose attempts are spans.

    Args:
        telemetry: whom to tell.
        arguments: those of Crew.
    """

    threads_type = Threads

    def __init__(self, telemetry: Telemetry, *arguments: Any) -> None:
        self.telemetry = telemetry
        self.batches_type = partial(TracedBatches, telemetry)
        self._lost: set[tuple[int, int]] = set()
        # What the log shall say of attempts that have ended and are not told of yet.
        self._spans: dict[tuple[int, int], dict[str, str]] = {}
        super().__init__(*arguments)

    async def _attempt(self, message: Message, me: asyncio.Task[None]) -> Ended | None:
        key = message.id, message.claim_id
        with self.telemetry.process([message]) as processing:
            ended = await super()._attempt(message, me)
            if ended is not None:
                processing.ended(ended)
            elif key in self._lost:
                processing.fail(names.LOST)
            if ended is not None and (ended.error is not None or ended.remarks):
                self._spans[key] = log_keys()
        self._lost.discard(key)
        return ended

    def _finish(self, message: Message, ended: Ended | None, *, started: bool = False) -> None:
        span = self._spans.pop((message.id, message.claim_id), None)
        if span is None:
            super()._finish(message, ended, started=started)
            return
        with bound_contextvars(**span):
            super()._finish(message, ended, started=started)

    def _stop_key(self, key: tuple[int, int], why: Why) -> None:
        if why is Why.LOST and key in self._running:
            self._lost.add(key)
        super()._stop_key(key, why)


class TracedBatches(Batches):
    """Batches whose runs are spans.

    Args:
        telemetry: whom to tell.
        arguments: those of Batches.
    """

    def __init__(self, telemetry: Telemetry, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.telemetry = telemetry
        self._spans: dict[Run, dict[str, str]] = {}

    async def _attempt(self, run: Run) -> list[Ended]:
        with self.telemetry.process(run.batch.messages, is_batch=True) as processing:
            self._spans[run] = log_keys()
            try:
                ended = await super()._attempt(run)
            except asyncio.CancelledError:
                processing.fail(_why(run))
                raise
            processing.ended(*ended)
            return ended

    def _done(self, run: Run, task: asyncio.Task[list[Ended]]) -> None:
        with bound_contextvars(**self._spans.pop(run, {})):
            super()._done(run, task)


def _why(run: Run) -> str:
    match run.why:
        case Why.TIMED_OUT:
            return names.TIMEOUT
        case Why.LOST:
            return names.LOST
        case _:
            return names.CANCELLED
