"""Gathers the messages of a batch handler, and starts its batches.

Each batch is its own task, which would be expensive for one message and is cheap for hundreds. Batches also have their
own slots: the topic's `concurrency` times `batch_size` messages, which do not count for `worker.concurrency`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from pgrouse.client.message import Message
from pgrouse.handlers.handler import BatchOptions, Handler
from pgrouse.worker.execution.attempts import Attempts
from pgrouse.worker.execution.run import Run


class BatchGatherer:
    """Gathers the messages of one batch handler.

    Args:
        concurrency: how many batches run at once.
        on_capacity: called when the gatherer can take messages again after it could take none.
        is_counted: whether claims count the runs of the messages.

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
    ) -> None:
        self.handler, self.options, self.concurrency = handler, options, concurrency
        self.attempts, self.on_capacity, self.is_counted = attempts, on_capacity, is_counted
        self.gathered: list[Message] = []
        self.running = 0
        self._gathering_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots_in_use = 0
        self._stopping = False

    @property
    def max_in_flight(self) -> int:
        """How many messages of the topic may be in flight."""
        return self.concurrency * self.options.size

    @property
    def capacity(self) -> int:
        """How many messages can be taken now: enough to fill the free slots.

        A batch that is not full takes a whole slot.
        """
        return max(0, (self.concurrency - self._slots_in_use) * self.options.size - len(self.gathered))

    @property
    def not_started(self) -> int:
        """How many messages wait for their batch to become full, or for a free slot."""
        return len(self.gathered)

    def add(self, messages: list[Message]) -> None:
        """Take claimed messages; run each batch that is full or has waited long enough."""
        if not self.gathered:
            self._gathering_since = time.monotonic()
        self.gathered += messages
        if self._stopping:
            self.release_waiting()
        else:
            self._start_ready()

    def discard(self, message: Message) -> bool:
        """Forget a message that waits; return whether it did."""
        if message not in self.gathered:
            return False
        before = self.capacity
        self.gathered.remove(message)
        self._report_capacity(before)
        return True

    def release_waiting(self) -> None:
        """Release messages that were not started, and from now on also those that a pending claim still returns."""
        self._stopping = True
        gathered, self.gathered = self.gathered, []
        self._set_timer()
        self.attempts.release(gathered)

    def tasks(self) -> list[asyncio.Task[None]]:
        """Return the tasks of the running batches."""
        return list(self._tasks)

    def _start_ready(self) -> None:
        """Run the batches that are full or have waited long enough, as far as there are free slots."""
        while self._slots_in_use < self.concurrency and self._is_ready():
            size = self.options.size
            first, self.gathered = self.gathered[:size], self.gathered[size:]
            self._gathering_since = time.monotonic()
            if held := [message for message in first if self.attempts.in_flight.holds(message)]:
                self._start(held)
        self._set_timer()

    def _is_ready(self) -> bool:
        waited = time.monotonic() - self._gathering_since >= self.options.wait_s
        return len(self.gathered) >= self.options.size or (waited and bool(self.gathered))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # If no slot is free, the batch starts when one becomes free.
        if self.gathered and self._slots_in_use < self.concurrency:
            left = max(0.0, self._gathering_since + self.options.wait_s - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(left, self._start_ready)

    def _start(self, messages: list[Message]) -> None:
        run = Run(self.handler, messages, self._free_slot)
        run.task = asyncio.create_task(self._run(run), name="batch")
        self.running += 1
        self._slots_in_use += 1
        self._tasks.add(run.task)
        self.attempts.runs.add(run)
        run.task.add_done_callback(partial(self._on_done, run))

    async def _run(self, run: Run) -> None:
        if not self.is_counted:
            for message in run.messages:
                self.attempts.settle_buffer.start(message)
        if self.attempts.begin(run.handler, run.messages, run.free_slot, run) is not None:
            await self.attempts.finish(run)
        self.running -= 1
        if not run.has_thread:
            self._free_slot()

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
