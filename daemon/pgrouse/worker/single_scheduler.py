"""Runs messages one by one: `concurrency` workers on the event loop, each of which takes a message and runs its handler.

A worker is a task of its own, so that timeouts and cancellation in a handler affect that handler only. There is no task per message:
handlers that never wait are run one after the other by the same worker, and the next worker is woken only when a handler waits.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from pgrouse.client.message import Message
from pgrouse.handlers.handler import Handler
from pgrouse.worker.attempts import Attempts

# A worker that has run handlers for this long without waiting yields to everything else.
TURN_S = 0.005


class TopicSlots:
    """How many messages of one topic are in flight here.

    Args:
        limit: how many may be; None = as many as the worker's.
        on_capacity: called when the topic was full and has a free slot again.
    """

    def __init__(self, handler: Handler, limit: int | None, on_capacity: Callable[[], None]) -> None:
        self.handler, self.limit, self.on_capacity = handler, limit, on_capacity
        self.in_use = 0

    @property
    def left(self) -> int | None:
        """How many slots are free; None = there is no limit."""
        return None if self.limit is None else self.limit - self.in_use

    def free(self) -> None:
        """One slot is free again; if there was none, claims have skipped the topic."""
        self.in_use -= 1
        if self.limit is not None and self.in_use == self.limit - 1:
            self.on_capacity()


class SingleScheduler:
    """Runs the messages of all handlers that take them one by one.

    Args:
        handlers: with the limits of their topics.
        concurrency: how many handlers run at once.
        on_capacity: called when a topic that was full has a free slot again.

    Attributes:
        waiting: messages that wait for a worker.
    """

    def __init__(
        self,
        handlers: Iterable[tuple[Handler, int | None]],
        concurrency: int,
        attempts: Attempts,
        on_capacity: Callable[[], None],
    ) -> None:
        self.slots = {each.topic: TopicSlots(each, limit, on_capacity) for each, limit in handlers}
        self.topics = sorted(self.slots)
        self.concurrency, self.attempts = concurrency, attempts
        self.waiting: deque[Message] = deque()
        # Those whose run the claim has not counted, by id and claim.
        self._uncounted: set[tuple[int, int]] = set()
        self.workers: set[asyncio.Task[None]] = set()
        self.idle_workers: list[asyncio.Future[None]] = []
        self._is_limited = any(each.limit is not None for each in self.slots.values())
        self._yielding = 0
        self._wakes_soon = False
        self._stopping = self._closing = False

    @property
    def not_started(self) -> int:
        """How many messages wait for a worker."""
        return len(self.waiting)

    def free_slots(self) -> tuple[list[str], list[int | None] | None]:
        """Return the topics with free slots, and how many each has; None = no topic has a limit of its own."""
        if not self._is_limited:
            return self.topics, None
        free = {topic: left for topic in self.topics if (left := self.slots[topic].left) is None or left > 0}
        return list(free), list(free.values())

    def add(self, messages: Iterable[Message], uncounted: set[int]) -> None:
        """Take claimed messages and run them. uncounted: the ids of those whose run the claim has not counted."""
        for message in messages:
            self.slots[message.topic].in_use += 1
            self.waiting.append(message)
            if message.id in uncounted:
                self._uncounted.add((message.id, message.claim_id))
        if self._stopping:
            self.release_waiting()
        if not self._wakes_soon:
            self._wake_worker()

    def discard(self, message: Message) -> bool:
        """Forget a message that waits; return whether it did."""
        if message not in self.waiting:
            return False
        self.waiting.remove(message)
        self._uncounted.discard((message.id, message.claim_id))
        self.slots[message.topic].free()
        return True

    def release_waiting(self) -> None:
        """Release what was not started, and from now on what a pending claim still returns."""
        self._stopping = True
        self._uncounted.clear()
        while self.waiting:
            message = self.waiting.popleft()
            self.slots[message.topic].free()
            self.attempts.release([message])

    def close(self) -> None:
        """Let the workers end."""
        self._closing = True

    def tasks(self) -> list[asyncio.Task[None]]:
        """Return the workers."""
        return list(self.workers)

    def _wake_soon(self) -> None:
        """Call `_wake_worker` when what is ready to run has run. Two calls would wake a second worker before the first takes its message."""
        if not self._wakes_soon:
            self._wakes_soon = True
            asyncio.get_running_loop().call_soon(self._wake_worker)

    def _wake_worker(self) -> None:
        """Wake one worker if messages wait, and check again when it has reached its first wait: most handlers never do."""
        self._wakes_soon = False
        if not self.waiting or self._yielding:
            return
        if self.idle_workers:
            resting = self.idle_workers.pop()
            # Otherwise it is already awake.
            if not resting.done():
                resting.set_result(None)
        elif len(self.workers) < self.concurrency:
            self.workers.add(asyncio.create_task(self._work(), name="handler"))
        else:
            return
        self._wake_soon()

    async def _work(self) -> None:
        """Run one worker."""
        me = asyncio.current_task()
        assert me is not None  # noqa: S101 - a coroutine of a task
        in_flight = self.attempts.in_flight
        turn_began = time.monotonic()
        while not self._closing:
            while not self.waiting:
                await self._idle(me)
                turn_began = time.monotonic()
            message, run = self.waiting.popleft(), None
            slots = self.slots[message.topic]
            if in_flight.holds(message):
                if self._uncounted:
                    self._count(message)
                run = self.attempts.begin(slots.handler, [message], slots.free)
                if run is not None:
                    await self.attempts.finish(run)
            if run is None or not run.has_thread:
                slots.free()
            if me.cancelling():
                # The handler swallowed its cancellation, or cancelled its own task: that must not affect the next one.
                await self._await_uncancelled(me, asyncio.sleep(0))
            if time.monotonic() - turn_began > TURN_S:
                await self._yield_turn(me)
                turn_began = time.monotonic()

    def _count(self, message: Message) -> None:
        """If the claim has not counted the run of a message, count it: it starts now."""
        claim = message.id, message.claim_id
        if claim in self._uncounted:
            self._uncounted.remove(claim)
            self.attempts.settle_buffer.start(message)

    async def _yield_turn(self, me: asyncio.Task[None]) -> None:
        """Let everything else have a turn, but no further worker: they would compute one after the other, each for a turn of its own."""
        self._yielding += 1
        await self._await_uncancelled(me, asyncio.sleep(0))
        self._yielding -= 1
        self._wake_soon()

    async def _idle(self, me: asyncio.Task[None]) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.idle_workers.append(future)
        await self._await_uncancelled(me, future)
        if future.cancelled() and future in self.idle_workers:
            self.idle_workers.remove(future)

    async def _await_uncancelled(self, me: asyncio.Task[None], event: Awaitable[None]) -> None:
        """Wait between two messages. A cancellation that arrives here while the executor is not closing was left behind by a handler: ignore it."""
        try:
            await event
        except asyncio.CancelledError:
            if self._closing:
                raise
        while me.cancelling():
            me.uncancel()
