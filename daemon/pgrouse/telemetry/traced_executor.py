"""The executor and the batch runner with OpenTelemetry: each attempt is a span, which is the current one for its handler."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from structlog.contextvars import bound_contextvars

from pgrouse.client.message import Message
from pgrouse.client.settlement import Settlement
from pgrouse.publishing.trace_context import log_keys
from pgrouse.telemetry import names
from pgrouse.telemetry.telemetry import Telemetry
from pgrouse.worker.batch_runner import BatchRun, BatchRunner
from pgrouse.worker.executor import HandlerExecutor
from pgrouse.worker.stop_reason import StopReason

P = ParamSpec("P")
T = TypeVar("T")


class ContextThreadPool(ThreadPoolExecutor):
    """A thread pool whose calls see the span that was current at submit."""

    def submit(self, call: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> Future[T]:
        """Run a call in a thread, with a copy of the current context."""
        return super().submit(contextvars.copy_context().run, call, *args, **named)  # type: ignore[arg-type]


class TracedExecutor(HandlerExecutor):
    """An executor whose attempts are spans.

    Args:
        telemetry: records the spans.
        arguments: those of the base class.
    """

    threads_type = ContextThreadPool

    def __init__(self, telemetry: Telemetry, *arguments: Any) -> None:
        self.telemetry = telemetry
        self.batch_runner_type = partial(TracedBatchRunner, telemetry)
        self._lost: set[tuple[int, int]] = set()
        # The log keys of attempts that have ended and are not logged yet.
        self._spans: dict[tuple[int, int], dict[str, str]] = {}
        super().__init__(*arguments)

    async def _attempt(self, message: Message, me: asyncio.Task[None]) -> Settlement | None:
        key = message.id, message.claim_id
        with self.telemetry.process([message]) as span:
            ended = await super()._attempt(message, me)
            if ended is not None:
                span.record_results(ended)
            elif key in self._lost:
                span.record_error(names.LOST)
            if ended is not None and (ended.error is not None or ended.warnings):
                self._spans[key] = log_keys()
        self._lost.discard(key)
        return ended

    def _finish(self, message: Message, ended: Settlement | None, *, started: bool = False) -> None:
        keys = self._spans.pop((message.id, message.claim_id), None)
        if keys is None:
            super()._finish(message, ended, started=started)
            return
        with bound_contextvars(**keys):
            super()._finish(message, ended, started=started)

    def _interrupt(self, key: tuple[int, int], reason: StopReason) -> None:
        if reason is StopReason.LOST and key in self._running:
            self._lost.add(key)
        super()._interrupt(key, reason)


class TracedBatchRunner(BatchRunner):
    """BatchRunner whose runs are spans.

    Args:
        telemetry: records the spans.
        arguments: those of the base class.
    """

    def __init__(self, telemetry: Telemetry, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.telemetry = telemetry
        self._spans: dict[BatchRun, dict[str, str]] = {}

    async def _attempt(self, run: BatchRun) -> list[Settlement]:
        with self.telemetry.process(run.batch.messages, is_batch=True) as span:
            self._spans[run] = log_keys()
            try:
                ended = await super()._attempt(run)
            except asyncio.CancelledError:
                span.record_error(_why(run))
                raise
            span.record_results(*ended)
            return ended

    def _on_done(self, run: BatchRun, task: asyncio.Task[list[Settlement]]) -> None:
        with bound_contextvars(**self._spans.pop(run, {})):
            super()._on_done(run, task)


def _why(run: BatchRun) -> str:
    match run.stop_reason:
        case StopReason.TIMED_OUT:
            return names.TIMEOUT
        case StopReason.LOST:
            return names.LOST
        case _:
            return names.CANCELLED
