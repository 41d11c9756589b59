"""Gathers the messages of a batch handler, and starts its batches.

Each batch is its own task, which would be expensive for one message and is cheap for hundreds. Batches also have their
own slots: the topic's `concurrency` times `batch_size` messages, which do not count for `worker.concurrency`. While
batches take a few milliseconds, the messages of the next ones are claimed ahead and wait for a slot.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from pgrouse.client.message import Message
from pgrouse.handlers.handler import BatchOptions, Handler
from pgrouse.worker.execution.attempts import Attempts
from pgrouse.worker.execution.prefetch import AHEAD_S, RELEASE_AFTER_S, WaitingMessages
from pgrouse.worker.execution.run import Run

# A batch counts as taking at least this long, and no more messages than this are claimed ahead.
MIN_BATCH_S = 0.0001
MAX_AHEAD = 10_000


class BatchGatherer:
    """Gathers the messages of one batch handler.

    Args:
        concurrency: how many batches run at once.
        on_capacity: called when the gatherer can take messages again after it could take none.
        is_counted: whether claims count the runs of the messages.
        claims_ahead: whether messages may be claimed before there is a slot for them.

    Attributes:
        gathered: messages that wait.
        running: how many batches run.
    """

    def __init__(
        self,
        handler: Handler,
        options: BatchOptions,
        concurrency: int,
        attempts: Attempts,
        on_capacity: Callable[[], None],
        *,
        is_counted: bool,
        claims_ahead: bool,
    ) -> None:
        self.handler, self.options, self.concurrency = handler, options, concurrency
        self.attempts, self.on_capacity = attempts, on_capacity
        self.is_counted, self.claims_ahead = is_counted, claims_ahead
        self.gathered = WaitingMessages()
        self.running = 0
        self._gathering_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._release_timer: asyncio.TimerHandle | None = None
        self._ahead = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots_in_use = 0
        self._stopping = self._closing = False

    @property
    def max_in_flight(self) -> int:
        """How many messages of the topic may be in flight."""
        return self.concurrency * self.options.size + self._ahead

    @property
    def capacity(self) -> int:
        """How many messages can be taken now: enough to fill the free slots.

        A batch that is not full takes a whole slot.
        """
        return max(0, self._free)

    @property
    def ahead(self) -> int:
        """How many more messages to claim now, which wait for a slot: about what ends within a few milliseconds.

        While more than half of these wait, no more are claimed: a few large claims cost less than many small ones.
        """
        waiting = max(0, -self._free)
        return self._ahead - waiting if 2 * waiting <= self._ahead else 0

    @property
    def _free(self) -> int:
        """As `capacity`; negative if more messages wait than the free slots take."""
        return (self.concurrency - self._slots_in_use) * self.options.size - self.not_started

    @property
    def not_started(self) -> int:
        """How many messages wait for their batch to become full, or for a free slot."""
        return len(self.gathered.messages)

    def add(self, messages: list[Message]) -> None:
        """Take claimed messages; run each batch that is full or has waited long enough."""
        if not self.not_started:
            self._gathering_since = time.monotonic()
        self.gathered.add(messages)
        if self._stopping:
            self.release_waiting()
        else:
            self._start_ready()
            self._set_release_timer()

    def discard(self, message: Message) -> bool:
        """Forget a message that waits; return whether it did."""
        before = self.capacity
        if not self.gathered.discard(message):
            return False
        self._report_capacity(before)
        return True

    def release_waiting(self) -> None:
        """Release messages that were not started, and from now on also those that a pending claim still returns."""
        self._stopping = True
        gathered = self.gathered.take_all()
        self._set_timer()
        self.attempts.release(gathered)

    def close(self) -> None:
        """Start no more batches."""
        self._closing = True

    def tasks(self) -> list[asyncio.Task[None]]:
        """Return the tasks of the running batches."""
        return list(self._tasks)

    def _start_ready(self) -> None:
        """Run the batches that are full or have waited long enough, as far as there are free slots."""
        while not self._closing and self._slots_in_use < self.concurrency and self._is_ready():
            first = self.gathered.take(self.options.size)
            self._gathering_since = time.monotonic()
            if held := [message for message in first if self.attempts.in_flight.holds(message)]:
                self._start(held)
        self._set_timer()

    def _is_ready(self) -> bool:
        waited = time.monotonic() - self._gathering_since >= self.options.wait_s
        return self.not_started >= self.options.size or (waited and self.not_started > 0)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # If no slot is free, the batch starts when one becomes free.
        if self.not_started and self._slots_in_use < self.concurrency:
            left = max(0.0, self._gathering_since + self.options.wait_s - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(left, self._start_ready)

    def _set_release_timer(self) -> None:
        if self.claims_ahead and self._release_timer is None and self.not_started:
            self._release_timer = asyncio.get_running_loop().call_later(RELEASE_AFTER_S, self._release_old)

    def _release_old(self) -> None:
        """Release messages that were claimed ahead and have waited too long.

        The batches take longer now, and another worker may have free slots.
        """
        self._release_timer = None
        # With a free slot, they wait for their batch to become full.
        if self._slots_in_use >= self.concurrency and (old := self.gathered.take_old()):
            self._ahead = 0
            self.attempts.release(old)
        self._set_release_timer()

    def _start(self, messages: list[Message]) -> None:
        run = Run(self.handler, messages, self._free_slot)
        run.task = asyncio.create_task(self._run(run), name="batch")
        self.running += 1
        self._slots_in_use += 1
        self._tasks.add(run.task)
        self.attempts.runs.add(run)
        run.task.add_done_callback(partial(self._on_done, run))

    async def _run(self, run: Run) -> None:
        began = time.monotonic()
        if not self.is_counted:
            for message in run.messages:
                self.attempts.settle_buffer.start(message)
        if self.attempts.begin(run.handler, run.messages, run.free_slot, run) is not None:
            await self.attempts.finish(run)
        self._plan_ahead(time.monotonic() - began)
        self.running -= 1
        if not run.has_thread:
            self._free_slot()

    def _plan_ahead(self, took_s: float) -> None:
        """A batch took this long: claim ahead as many batches as end in AHEAD_S at that rate."""
        if self.claims_ahead:
            batches = int(AHEAD_S / max(took_s, MIN_BATCH_S)) * self.concurrency
            self._ahead = min(batches * self.options.size, MAX_AHEAD)

    def _on_done(self, run: Run, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        # A task that is cancelled before its first step never runs.
        if not run.is_over:
            self.attempts.end_unstarted(run)
            self.running -= 1
            self._free_slot()

    def _free_slot(self) -> None:
        before = self.capacity
        self._slots_in_use -= 1
        self._start_ready()
        self._report_capacity(before)

    def _report_capacity(self, before: int) -> None:
        """If there was no capacity before, claims have skipped the topic."""
        if before == 0 and self.capacity > 0:
            self.on_capacity()
