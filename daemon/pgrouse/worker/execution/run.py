"""A run: one call of a handler, from its start until its messages are settled."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from enum import Enum

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import Settlement
from pgrouse.handlers.call import HandlerCall
from pgrouse.handlers.handler import Handler
from pgrouse.worker.execution.in_flight import InFlight
from pgrouse.worker.reporting.observer import NO_SPAN, AttemptSpan


class StopReason(Enum):
    """Why a run is stopped from outside."""

    TIMED_OUT = "timed_out"
    LOST = "lost"
    DRAINED = "drained"


class Run:
    """A call of a handler that did not end at once, with one message or a batch.

    Args:
        messages: the messages of the call.
        free_slot: called when the run has ended; if a thread runs the handler, called when that thread ends.

    Attributes:
        task: the task in which it runs: a worker's task for one message, a separate task for a batch.
        call: the call of the handler; None until it begins.
        span: the span of its attempt.
        context: the context of its attempt; set when the call begins.
        began_at: when its call began, by the monotonic clock; 0 unless that is logged.
        stop_reason: why it was stopped from outside, if it was.
        has_lost: whether the lock of one of its messages was lost.
        has_thread: whether a thread runs the handler: it cannot be stopped, and keeps its slot until it ends by itself.
        timer: stops it when its timeout ends.
        ended: how its messages end, if its handler ended at once.
        is_over: whether its end is decided.
    """

    __slots__ = (
        "began_at",
        "call",
        "context",
        "ended",
        "free_slot",
        "handler",
        "has_lost",
        "has_thread",
        "is_over",
        "messages",
        "span",
        "stop_reason",
        "task",
        "timer",
    )

    def __init__(self, handler: Handler, messages: list[Message], free_slot: Callable[[], None]) -> None:
        self.handler, self.messages, self.free_slot = handler, messages, free_slot
        self.task: asyncio.Task[None]
        self.context: contextvars.Context
        self.call: HandlerCall | None = None
        self.span: AttemptSpan = NO_SPAN
        self.began_at = 0.0
        self.stop_reason: StopReason | None = None
        self.has_lost = self.has_thread = self.is_over = False
        self.timer: asyncio.TimerHandle | None = None
        self.ended: list[Settlement] | None = None

    def begin(self, call: HandlerCall) -> None:
        """The call has begun, in the current task, and has not ended."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a handler is called in a task
        self.task, self.call = task, call

    def stop(self, reason: StopReason) -> None:
        """Cancel it; only the first reason counts."""
        if self.stop_reason is None:
            self.stop_reason = reason
            self.task.cancel()

    def start_timeout(self, limit_s: float, in_flight: InFlight) -> None:
        """The handler starts: its timeout counts from now on."""
        if not self.is_over:
            in_flight.mark_started(self.messages, time.monotonic())
            self.start_timer(limit_s)

    def start_timer(self, left_s: float) -> None:
        """Stop the run when this many seconds are over, if it has not ended by then."""
        self.timer = asyncio.get_running_loop().call_later(left_s, self.stop, StopReason.TIMED_OUT)
