"""How many messages are claimed ahead, and what becomes of those that wait too long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind
from pgrouse.worker.execution import batch_gatherer, single_scheduler
from pgrouse.worker.execution.capacity import Capacity
from pgrouse.worker.execution.executor import HandlerExecutor
from pgrouse.worker.execution.prefetch import AHEAD_S, HALVE_S, SAMPLE_S, Prefetch, WaitingMessages
from pgrouse.worker.loop.claim_planner import ClaimPlanner
from tests.unit.conftest import Clock
from tests.unit.worker.test_executor import Gate, batch_handler, ends, executor_of, handler, nothing, until

Claimed = Callable[..., Message]


def test_what_ends_in_a_few_milliseconds_is_claimed_ahead_per_topic(clock: Clock) -> None:
    ended = {"fast": 0, "slow": 0}
    prefetch = Prefetch(lambda: ended, clock)

    ended.update(fast=500, slow=1)
    clock.forward(0.1)

    assert prefetch.counts() == {"fast": pytest.approx(5000 * AHEAD_S, abs=1)}


def test_a_rate_is_measured_over_some_time_and_decays_when_nothing_ends(clock: Clock) -> None:
    ended = {"job": 0}
    prefetch = Prefetch(lambda: ended, clock)

    ended["job"] = 1000
    clock.forward(SAMPLE_S * 0.6)
    assert prefetch.counts() == {}
    clock.forward(SAMPLE_S * 0.6)
    first = prefetch.counts()["job"]
    clock.forward(HALVE_S)

    assert prefetch.counts()["job"] == pytest.approx(first / 2, abs=1)
    clock.forward(60)
    assert prefetch.counts() == {}


def test_a_topic_whose_messages_waited_too_long_is_claimed_ahead_again_when_others_have_ended(
    clock: Clock, claimed: Claimed
) -> None:
    ended = {"a": 0, "b": 0}
    prefetch = Prefetch(lambda: ended, clock)
    ended.update(a=1000, b=1000)
    clock.forward(0.1)
    assert prefetch.counts().keys() == {"a", "b"}

    prefetch.reset([claimed("a"), claimed("a")])

    assert prefetch.counts().keys() == {"b"}
    ended.update(a=2000)
    clock.forward(0.1)
    assert prefetch.counts().keys() == {"a", "b"}


def test_what_waits_since_the_last_look_is_old(claimed: Claimed) -> None:
    waiting = WaitingMessages()
    messages = [claimed() for _ in range(5)]
    waiting.add(messages[:3])

    assert waiting.take_old() == []
    waiting.messages.popleft()
    waiting.add(messages[3:])

    assert waiting.take_old() == messages[1:3]
    assert waiting.take_old() == messages[3:]
    assert waiting.take_old() == []


class TestPlans:
    def planner(self, clock: Clock, capacity: Capacity, connections: int = 1) -> ClaimPlanner:
        return ClaimPlanner(lambda: capacity, lambda: 5.0, clock, connections)

    def test_a_topic_is_bounded_by_what_can_start_and_what_may_wait(self, clock: Clock) -> None:
        capacity = Capacity(["fast", "slow", "narrow"], [None, None, 25], 300, start=100, prefetch=[200, 0, 20])

        request = self.planner(clock, capacity).next_turn(first=True).request

        assert request is not None
        assert (request.limit, request.start) == (300, None)
        assert dict(zip(request.topics, request.slots or (), strict=True)) == {"fast": 300, "slow": 100, "narrow": 25}
        assert request.prefetch == [200, 0, 20]

    def test_what_a_pending_claim_may_return_can_no_longer_start(self, clock: Clock) -> None:
        planner = self.planner(
            clock, Capacity(["fast", "slow"], None, 300, start=100, prefetch=[200, 0]), connections=2
        )
        planner._has_backlog = True

        planner.next_turn(first=True)
        request = planner.next_turn(first=False).request

        assert request is not None
        assert (request.topics, request.slots, request.limit) == (["fast"], [200], 150)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is released because the machine is slow."""
    for each in (single_scheduler, batch_gatherer):
        monkeypatch.setattr(each, "RELEASE_AFTER_S", 3600.0)


class TestWaiting:
    async def test_what_is_claimed_ahead_for_a_full_topic_starts_in_its_order_when_a_slot_is_free(
        self, claimed: Claimed, patient: None
    ) -> None:
        gate = Gate()

        async with executor_of(handler(gate.handle, 2), prefetch=None, concurrency=10) as executor:
            executor.add([claimed(payload=str(n)) for n in range(5)], 0)
            await until(lambda: len(gate.started) == 2)
            for _ in range(10):
                await asyncio.sleep(0)
            assert (gate.started, executor.running, executor.not_started) == ([0, 1], 2, 3)
            gate.open.set()
            await until(lambda: len(executor.settle_buffer.waiting) == 5)

            assert gate.started == [0, 1, 2, 3, 4]
            assert executor.not_started == 0

    async def test_a_run_that_is_stopped_while_it_waits_for_a_thread_frees_its_slot_at_once(
        self, claimed: Claimed
    ) -> None:
        release = threading.Event()
        ran: list[object] = []

        handlers = handler(lambda payload: release.wait(60), 1), handler(ran.append, 1, topic="other")
        async with executor_of(*handlers, threads=1) as executor:
            executor.add([claimed()], 0)
            await until(lambda: executor.threads.busy == 1)
            queued = claimed("other")
            executor.add([queued], 0)
            await until(lambda: executor.threads.busy == 2)

            executor.on_lock_lost([queued])
            await until(lambda: executor.threads.busy == 1)

            assert executor.capacity().topics == ["other"]
            release.set()
            await until(lambda: executor.threads.busy == 0)
            assert ran == []

    @pytest.mark.parametrize("limit", [None, 2], ids=["for a worker", "for a slot of the topic"])
    async def test_what_waits_too_long_is_released(
        self, claimed: Claimed, monkeypatch: pytest.MonkeyPatch, limit: int | None
    ) -> None:
        monkeypatch.setattr(single_scheduler, "RELEASE_AFTER_S", 0.01)
        gate = Gate()

        async with executor_of(handler(gate.handle, limit), prefetch=None, concurrency=2) as executor:
            messages = [claimed(payload=str(n)) for n in range(5)]
            executor.add(messages, 0)
            await until(lambda: len(executor.settle_buffer.waiting) == 3)

            assert ends(executor) == [(each.id, SettleKind.RELEASE) for each in messages[2:]]
            assert (executor.running, executor.not_started) == (2, 0)
            gate.open.set()
            await until(lambda: not executor.running)
            assert executor.capacity().limit > 0

    async def test_while_fewer_handlers_run_than_may_nothing_is_released(
        self, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(single_scheduler, "RELEASE_AFTER_S", 0.0)

        async def wait_a_little(payload: object) -> None:
            for _ in range(100):
                await asyncio.sleep(0)

        async with executor_of(handler(wait_a_little), prefetch=None, concurrency=100) as executor:
            executor.add([claimed() for _ in range(20)], 0)
            await until(lambda: len(executor.settle_buffer.waiting) == 20)

            assert {kind for _, kind in ends(executor)} == {SettleKind.COMPLETE}


class TestBatches:
    async def test_batches_that_end_soon_are_claimed_ahead(
        self, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(batch_gatherer, "AHEAD_S", 3600.0)
        async with executor_of(batch_handler(nothing, 10), prefetch=None) as executor:
            assert room(executor) == ([10], [0])
            executor.add([claimed() for _ in range(10)], 0)
            await until(lambda: len(executor.settle_buffer.waiting) == 10)

            assert room(executor) == ([10 + batch_gatherer.MAX_AHEAD], [batch_gatherer.MAX_AHEAD])

    async def test_with_a_fixed_prefetch_no_batch_is_claimed_ahead(
        self, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(batch_gatherer, "AHEAD_S", 3600.0)
        async with executor_of(batch_handler(nothing, 10), prefetch=0) as executor:
            executor.add([claimed() for _ in range(10)], 0)
            await until(lambda: len(executor.settle_buffer.waiting) == 10)

            assert room(executor) == ([10], [0])

    async def test_a_batch_that_waits_does_not_start_after_the_end(self, claimed: Claimed, patient: None) -> None:
        gate = Gate()

        async with executor_of(batch_handler(gate.handle, 2), prefetch=None) as executor:
            executor.add([claimed(payload=str(n)) for n in range(5)], 0)
            await until(lambda: gate.started)
            await executor.close()

            assert (gate.started, executor.running) == ([[0, 1]], 0)

    async def test_no_more_are_claimed_ahead_while_more_than_half_of_them_wait(
        self, claimed: Claimed, monkeypatch: pytest.MonkeyPatch, patient: None
    ) -> None:
        monkeypatch.setattr(batch_gatherer, "AHEAD_S", 3600.0)
        monkeypatch.setattr(batch_gatherer, "MAX_AHEAD", 100)
        gate = Gate()

        async with executor_of(batch_handler(gate.handle, 10), prefetch=None) as executor:
            gate.open.set()
            executor.add([claimed(payload="1") for _ in range(10)], 0)
            await until(lambda: len(executor.settle_buffer.waiting) == 10)
            gate.open.clear()
            executor.add([claimed(payload="1") for _ in range(60)], 0)
            await until(lambda: executor.running)
            assert (executor.not_started, room(executor)) == (50, ([50], [50]))

            executor.add([claimed(payload="1")], 0)

            assert room(executor) == ([], [])
            gate.open.set()

    async def test_a_batch_that_waits_too_long_is_released_and_no_other_is_claimed_ahead(
        self, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(batch_gatherer, "AHEAD_S", 3600.0)
        monkeypatch.setattr(batch_gatherer, "RELEASE_AFTER_S", 0.01)
        gate = Gate()

        async with executor_of(batch_handler(gate.handle, 2), prefetch=None) as executor:
            gate.open.set()
            executor.add([claimed(payload="1") for _ in range(2)], 0)
            await until(lambda: len(executor.settle_buffer.waiting) == 2)
            gate.open.clear()
            messages = [claimed(payload="1") for _ in range(5)]
            executor.add(messages, 0)
            await until(lambda: len(executor.settle_buffer.waiting) == 5)

            assert ends(executor)[2:] == [(each.id, SettleKind.RELEASE) for each in messages[2:]]
            assert (executor.running, executor.not_started, room(executor)) == (1, 0, ([], []))
            gate.open.set()

    async def test_what_waits_for_its_batch_to_become_full_is_not_released(
        self, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(batch_gatherer, "RELEASE_AFTER_S", 0.0)

        async with executor_of(batch_handler(nothing, 2, wait_s=3600.0), prefetch=None) as executor:
            executor.add([claimed()], 0)
            for _ in range(10):
                await asyncio.sleep(0)
            assert (ends(executor), executor.not_started) == ([], 1)
            executor.add([claimed()], 0)
            await until(lambda: len(executor.settle_buffer.waiting) == 2)

            assert {kind for _, kind in ends(executor)} == {SettleKind.COMPLETE}


def room(executor: HandlerExecutor) -> tuple[list[int | None] | None, list[int] | None]:
    """How many messages of the topic batches can take, and how many of these would wait."""
    batches = executor.capacity().batches
    assert batches is not None
    return batches.slots, batches.prefetch
