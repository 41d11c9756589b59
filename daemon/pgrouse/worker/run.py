"""A run: what a handler is called for, from its start until its messages are settled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from enum import Enum

from pgrouse.client.message import Message
from pgrouse.handlers.call import HandlerCall
from pgrouse.handlers.handler import Handler
from pgrouse.worker.in_flight import InFlight


class StopReason(Enum):
    """Why a run is stopped from outside."""

    TIMED_OUT = "timed_out"
    LOST = "lost"
    DRAINED = "drained"


class Run:
    """One message, or one batch, on its way through its handler.

    Args:
        free_slot: called when the run has ended; if a thread runs the handler, when that ends.
        is_counted: whether the claim has counted the run of these messages.

    Attributes:
        messages: what the handler is called for.
        task: the task in which it runs: a worker's for one message, its own for a batch.
        call: the call of the handler; None until it starts.
        stop_reason: why it was stopped from outside, if it was.
        has_lost: whether the lock of one of its messages was lost.
        has_thread: whether a thread runs the handler: it cannot be stopped, and keeps its slot until it ends by itself.
        timer: stops it when its timeout ends.
        is_over: whether its end is decided.
    """

    # One is made for each message: class attributes as defaults would cost more.
    __slots__ = (
        "call",
        "free_slot",
        "handler",
        "has_lost",
        "has_thread",
        "is_counted",
        "is_over",
        "messages",
        "stop_reason",
        "task",
        "timer",
    )

    def __init__(
        self, handler: Handler, messages: list[Message], free_slot: Callable[[], None], is_counted: bool
    ) -> None:
        self.handler, self.messages, self.free_slot, self.is_counted = handler, messages, free_slot, is_counted
        self.task: asyncio.Task[None]
        self.call: HandlerCall | None = None
        self.stop_reason: StopReason | None = None
        self.has_lost = self.has_thread = self.is_over = False
        self.timer: asyncio.TimerHandle | None = None

    def stop(self, reason: StopReason) -> None:
        """Cancel it; only the first reason counts."""
        if self.stop_reason is None:
            self.stop_reason = reason
            self.task.cancel()

    def start_timeout(self, limit_s: float, in_flight: InFlight) -> None:
        """The handler starts: from now on its timeout counts."""
        if self.is_over:
            return
        now = time.monotonic()
        for message in self.messages:
            in_flight.mark_started(message, now)
        self.timer = asyncio.get_running_loop().call_later(limit_s, self.stop, StopReason.TIMED_OUT)
