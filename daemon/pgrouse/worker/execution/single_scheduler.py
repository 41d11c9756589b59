"""Runs messages one by one.

There are `concurrency` workers on the event loop, each of which takes a message and runs its handler.

Each worker is its own task, so that timeouts and cancellation in a handler affect that handler only. There is no task
per message: the same worker runs handlers that never wait one after the other, and wakes the next worker only when a
handler waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

from pgrouse.client.message import Message
from pgrouse.handlers.handler import Handler
from pgrouse.values.topic_pattern import by_topic
from pgrouse.worker.execution.attempts import Attempts
from pgrouse.worker.execution.prefetch import RELEASE_AFTER_S, Prefetch, WaitingMessages

# A worker that has run handlers for this long without waiting lets all other tasks run.
TURN_S = 0.005


class TopicSlots:
    """Counts the messages of one topic that run here, or are about to.

    Args:
        limit: how many may run; None = as many as the worker's, and `in_use` stays 0.
        start: takes a message that waited and now has a slot.
        on_capacity: called when the topic was full and has a free slot again.

    Attributes:
        ended: how many have ended so far.
        waiting: messages that were claimed ahead and wait for a slot.
    """

    def __init__(
        self,
        handler: Handler,
        limit: int | None,
        start: Callable[[Message], None],
        on_capacity: Callable[[], None],
    ) -> None:
        self.handler, self.limit, self.start, self.on_capacity = handler, limit, start, on_capacity
        self.in_use = self.ended = 0
        self.waiting = WaitingMessages()

    @property
    def left(self) -> int | None:
        """How many slots are free; None = there is no limit."""
        return None if self.limit is None else self.limit - self.in_use

    def take(self, message: Message) -> bool:
        """Take a free slot for a message; return False if there is none, and the message waits for one."""
        if self.limit is None:
            return True
        if self.in_use >= self.limit:
            self.waiting.add([message])
            return False
        self.in_use += 1
        return True

    def free(self) -> None:
        """A message has ended: its slot is free."""
        self.ended += 1
        if self.limit is not None:
            self.leave()

    def leave(self) -> None:
        """Give a free slot to the next message that waits. If the topic was full, claims have skipped it."""
        if self.limit is None:
            return
        was_full = self.in_use == self.limit
        self.in_use -= 1
        if self.waiting.messages:
            self.in_use += 1
            self.start(self.waiting.messages.popleft())
        if was_full:
            self.on_capacity()


class SingleScheduler:
    """Runs the messages of all handlers that take them one by one.

    Args:
        handlers: with the limits of their topics.
        concurrency: how many handlers run at once.
        releases_old: whether to release messages that have waited too long.
        on_capacity: called when a topic that was full has a free slot again.

    Attributes:
        waiting: messages that wait for a worker. Those of a topic without a free slot wait for that first.
        prefetch: how many messages to claim ahead.
    """

    def __init__(
        self,
        handlers: Iterable[tuple[Handler, int | None]],
        concurrency: int,
        attempts: Attempts,
        on_capacity: Callable[[], None],
        *,
        releases_old: bool = False,
    ) -> None:
        self.slots = by_topic(
            {each.topic: TopicSlots(each, limit, self._start, on_capacity) for each, limit in handlers}
        )
        self.topics = sorted(self.slots)
        self.concurrency, self.attempts, self.releases_old = concurrency, attempts, releases_old
        self.waiting = WaitingMessages()
        self.prefetch = Prefetch(lambda: {topic: each.ended for topic, each in self.slots.items()})
        self._release_timer: asyncio.TimerHandle | None = None
        # The messages whose run the claim has not counted, by id and claim.
        self._uncounted: set[tuple[int, int]] = set()
        self.workers: set[asyncio.Task[None]] = set()
        self.idle_workers: list[asyncio.Future[None]] = []
        self.limited = {topic: each for topic, each in self.slots.items() if each.limit is not None}
        self._yielding = 0
        # How many workers must end, because concurrency is lower than when they were started.
        self._surplus = 0
        self._wakes_soon = False
        self._stopping = self._closing = False

    @property
    def not_started(self) -> int:
        """How many messages wait for a worker, or for a slot of their topic."""
        return len(self.waiting.messages) + sum(len(each.waiting.messages) for each in self.limited.values())

    def may_wait(self, ahead: Mapping[str, int]) -> tuple[int, dict[str, int]]:
        """Return how many messages may wait for a worker.

        Return also how many more of each topic with a limit may wait for a slot of the topic.

        While more than half of them wait, no more are claimed: a few large claims cost less than many small ones.

        Args:
            ahead: how many of each topic to claim ahead.
        """
        for_workers = sum(count for topic, count in ahead.items() if topic not in self.limited)
        for_slots = {
            topic: count - waiting
            for topic, count in ahead.items()
            if topic in self.limited and 2 * (waiting := len(self.limited[topic].waiting.messages)) <= count
        }
        return for_workers if 2 * len(self.waiting.messages) <= for_workers else 0, for_slots

    def free_slots(self, for_slots: Mapping[str, int]) -> tuple[list[str], list[int | None] | None]:
        """Return the topics whose messages can be taken, and how many of each; None = no topic has its own limit.

        Args:
            for_slots: how many more of each topic may wait for a slot of the topic.
        """
        if not self.limited:
            return self.topics, None
        free: dict[str, int | None] = {}
        for topic in self.topics:
            left = self.slots[topic].left
            room = None if left is None else left + for_slots.get(topic, 0)
            if room is None or room > 0:
                free[topic] = room
        return list(free), list(free.values())

    def add(self, messages: list[Message], uncounted: set[int]) -> None:
        """Take claimed messages and run them.

        uncounted: the ids of the messages whose run the claim has not counted.
        """
        if uncounted:
            self._uncounted.update((each.id, each.claim_id) for each in messages if each.id in uncounted)
        self.waiting.add([each for each in messages if self.slots[each.topic].take(each)] if self.limited else messages)
        if self._stopping:
            self.release_waiting()
        if not self._wakes_soon:
            self._wake_worker()
        self._set_release_timer()

    def discard(self, message: Message) -> bool:
        """Forget a message that waits; return whether it did."""
        slots = self.slots[message.topic]
        if self.waiting.discard(message):
            slots.leave()
        elif not slots.waiting.discard(message):
            return False
        self._uncounted.discard((message.id, message.claim_id))
        return True

    def release_waiting(self) -> None:
        """Release messages that were not started, and from now on also those that a pending claim still returns."""
        self._stopping = True
        self._uncounted.clear()
        for each in self.limited.values():
            self.attempts.release(each.waiting.take_all())
        self._release(self.waiting.take_all())

    def _start(self, message: Message) -> None:
        """Run a message that has waited for a slot of its topic."""
        self.waiting.add([message])
        self._wake_soon()

    def _release(self, messages: list[Message]) -> None:
        """Release messages that have a slot of their topic and wait for a worker."""
        for message in messages:
            self.slots[message.topic].leave()
        self.attempts.release(messages)

    def _set_release_timer(self) -> None:
        if self.releases_old and self._release_timer is None and self.not_started:
            self._release_timer = asyncio.get_running_loop().call_later(RELEASE_AFTER_S, self._release_old)

    def _release_old(self) -> None:
        """Release messages that were claimed ahead and have waited too long.

        The handlers are slower now, and another worker may have free slots.
        """
        self._release_timer = None
        for each in self.limited.values():
            old = each.waiting.take_old()
            self.attempts.release(old)
            self.prefetch.reset(old)
        # While a worker is idle, only a handler that computes delays the waiting messages: they would be claimed again
        # at once.
        if len(self.workers) >= self.concurrency and not self.idle_workers:
            old = self.waiting.take_old()
            self._release(old)
            self.prefetch.reset(old)
        self._set_release_timer()

    def scale(self, concurrency: int) -> None:
        """Use this many workers from now on. Surplus workers end when their handlers have ended."""
        self.concurrency = concurrency
        self._surplus = max(0, len(self.workers) - concurrency)
        for _ in range(min(self._surplus, len(self.idle_workers))):
            self._wake_idle_worker()
        self._wake_soon()

    def close(self) -> None:
        """Let the workers end."""
        self._closing = True

    def tasks(self) -> list[asyncio.Task[None]]:
        """Return the workers."""
        return list(self.workers)

    def _wake_soon(self) -> None:
        """Call `_wake_worker` after the tasks that are ready.

        Two calls would wake a second worker before the first takes its message.
        """
        if not self._wakes_soon:
            self._wakes_soon = True
            asyncio.get_running_loop().call_soon(self._wake_worker)

    def _wake_worker(self) -> None:
        """Wake one worker if messages wait, and check again when it first waits: most handlers never wait."""
        self._wakes_soon = False
        if not self.waiting.messages or self._yielding:
            return
        if self.idle_workers:
            self._wake_idle_worker()
        elif len(self.workers) < self.concurrency:
            self.workers.add(asyncio.create_task(self._work(), name="handler"))
        else:
            return
        self._wake_soon()

    def _wake_idle_worker(self) -> None:
        resting = self.idle_workers.pop()
        # Otherwise it is already awake.
        if not resting.done():
            resting.set_result(None)

    async def _work(self) -> None:
        """Run one worker."""
        me = asyncio.current_task()
        assert me is not None  # noqa: S101 - a coroutine of a task
        begin, in_flight = self.attempts.begin, self.attempts.in_flight
        topics, waiting = self.slots, self.waiting.messages
        turn_began = time.monotonic()
        while not self._closing:
            while not waiting and not self._surplus:
                await self._idle(me)
                turn_began = time.monotonic()
            if self._surplus:
                # If it was woken for a message, another worker that was woken at the same time takes that.
                self._surplus -= 1
                self.workers.discard(me)
                return
            message, run = waiting.popleft(), None
            slots = topics[message.topic]
            if in_flight.holds(message):
                if self._uncounted:
                    self._count(message)
                run = begin(slots.handler, [message], slots.free)
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
        """Let all other tasks run, but wake no further worker.

        The workers would compute one after the other, for one turn each.
        """
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
        """Wait between two messages.

        If a cancellation arrives here while the executor is not closing, a handler left it behind: ignore it.
        """
        try:
            await event
        except asyncio.CancelledError:
            if self._closing:
                raise
        while me.cancelling():
            me.uncancel()
