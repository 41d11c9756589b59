"""Handlers that cancel their own task, or leave a cancellation behind: that is their own failure, and no place of the crew is lost by it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import LogCapture

from pgrouse.handlers.ack_rules import AckPolicy, Rules
from pgrouse.worker.executor import Crew
from pgrouse.handlers.handler import Handler, Mode
from pgrouse.client.message import Message
from pgrouse.handlers.outcome import Kind
from tests.unit.test_batch import batch_handler
from tests.unit.test_executor import Gate, crew_of, ends, handler, nothing, until

Claimed = Callable[..., Message]


def me() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def cancel_and_wait(payload: Any) -> None:
    me().cancel()
    await asyncio.sleep(0)


async def cancel_and_wait_long(payload: Any) -> None:
    asyncio.get_running_loop().call_soon(me().cancel)
    await asyncio.sleep(3600)


async def cancel_and_return(payload: Any) -> None:
    me().cancel()


async def cancel_often_and_return(payload: Any) -> None:
    for _ in range(3):
        me().cancel()


async def cancel_and_swallow(payload: Any) -> None:
    """As time-outs do that were written before tasks counted their cancellations."""
    me().cancel()
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        return


async def cancel_when_it_is_over(payload: Any) -> None:
    """As a timer does that nobody took back."""
    asyncio.get_running_loop().call_soon(me().cancel)


ENDS = {
    cancel_and_wait: Kind.RETRY,
    cancel_and_wait_long: Kind.RETRY,
    cancel_and_return: Kind.COMPLETE,
    cancel_often_and_return: Kind.COMPLETE,
    cancel_and_swallow: Kind.COMPLETE,
    cancel_when_it_is_over: Kind.COMPLETE,
}
Cancelling = pytest.mark.parametrize("cancelling", ENDS, ids=lambda each: each.__name__)


async def rest(crew: Crew) -> None:
    """Let the loops of a crew come to rest."""
    await until(lambda: len(crew._resting) == len(crew._loops) and not crew.running)
    for _ in range(5):
        await asyncio.sleep(0)


def all_live(crew: Crew) -> bool:
    return not any(task.done() or task.cancelling() for task in crew._loops)


@Cancelling
async def test_it_costs_no_worker_loop(claimed: Claimed, cancelling: Callable[..., Any]) -> None:
    async with crew_of(handler(cancelling), concurrency=1) as crew:
        for n in range(3):
            crew.add([claimed()], 0)
            await until(lambda n=n: len(crew.settler.waiting) > n)  # type: ignore[misc]
            await rest(crew)
            assert all_live(crew)

        assert [kind for _, kind in ends(crew)] == [ENDS[cancelling]] * 3
        assert len(crew._loops) == len(crew._resting) == 1
    assert not crew.left_behind


@Cancelling
async def test_the_next_message_of_the_same_loop_finds_nothing_of_it(
    claimed: Claimed, cancelling: Callable[..., Any]
) -> None:
    counts: list[int] = []

    async def look(payload: Any) -> None:
        counts.append(me().cancelling())
        async with asyncio.timeout(60):
            await asyncio.sleep(0.001)
        counts.append(me().cancelling())

    async with crew_of(handler(cancelling), handler(look, topic="next"), concurrency=1, prefetch=1) as crew:
        crew.add([claimed()], 0)
        await rest(crew)
        crew.add([claimed(), claimed("next")], 0)
        await until(lambda: len(crew.settler.waiting) == 3)

        if cancelling is cancel_when_it_is_over:
            # Nobody can tell from outside which message a late timer is about.
            assert counts[0] == 0
        else:
            assert [kind for _, kind in ends(crew)][-1] == Kind.COMPLETE
            assert counts == [0, 0]


async def test_its_error_says_where_it_was_cancelled(claimed: Claimed) -> None:
    async with crew_of(handler(cancel_and_wait)) as crew:
        crew.add([claimed()], 0)
        await until(lambda: crew.settler.waiting)

        (ended,) = crew.settler.waiting
        assert "in cancel_and_wait" in (ended.error or "")
        assert ended.error_type == "CancelledError"


async def test_it_is_settled_as_the_policy_of_the_topic_says(claimed: Claimed) -> None:
    rejecting = Handler("job", "m:f", cancel_and_wait, Mode.ASYNC, 1, None, rules=Rules(AckPolicy.REJECT_ON_ERROR))

    async with crew_of(rejecting) as crew:
        crew.add([claimed()], 0)
        await until(lambda: crew.settler.waiting)

        assert [kind for _, kind in ends(crew)] == [Kind.REJECT]


async def test_after_the_completion_it_is_only_logged(claimed: Claimed, logged: LogCapture) -> None:
    first = Handler("job", "m:f", cancel_and_wait, Mode.ASYNC, 1, None, rules=Rules(AckPolicy.ACK_FIRST))
    message = claimed()

    async def complete_first(messages: list[Message]) -> list[int]:
        return []

    async with crew_of(first, concurrency=1) as crew:
        crew.scene = SimpleNamespace(complete_first=complete_first)  # type: ignore[assignment]
        crew.add([message], 0)
        await until(lambda: crew._loops and not crew.running and not crew.waiting)
        await rest(crew)

        assert all_live(crew)
        assert ends(crew) == []
    (said,) = [each for each in logged.entries if each["event"] == "message.ended_after_completion"]
    assert said["message_id"] == message.id
    assert "CancelledError" in said["reason"]


async def test_a_message_that_comes_just_when_a_resting_loop_is_hit_is_run(claimed: Claimed) -> None:
    async with crew_of(handler(nothing), concurrency=1) as crew:
        crew.add([claimed()], 0)
        await rest(crew)

        for n in range(2, 5):
            (loop,) = crew._loops
            loop.cancel()
            crew.add([claimed()], 0)
            await until(lambda n=n: len(crew.settler.waiting) == n)  # type: ignore[misc]
            crew.add([claimed()], 0)
            loop.cancel()
            await rest(crew)
            crew.settler.waiting.pop()

        assert all_live(crew)
        assert (len(crew._loops), len(crew._resting)) == (1, 1)


async def test_a_cancellation_that_hits_the_wait_for_a_thread_fails_that_message(claimed: Claimed) -> None:
    release = threading.Event()
    threaded, fine = claimed(), claimed("fine")

    async with crew_of(
        handler(lambda payload: release.wait(60)), handler(nothing, topic="fine"), concurrency=1
    ) as crew:
        crew.add([threaded], 0)
        await until(lambda: crew.running and crew._threads_busy)
        (loop,) = crew._loops
        loop.cancel()
        await until(lambda: crew.settler.waiting)
        release.set()
        crew.add([fine], 0)
        await until(lambda: len(crew.settler.waiting) == 2)

        assert ends(crew) == [(threaded.id, Kind.RETRY), (fine.id, Kind.COMPLETE)]
        await until(lambda: not crew._threads_busy)


class TestOurs:
    @pytest.mark.parametrize("late", [False, True], ids=["before", "in the moment in which it could go on"])
    async def test_a_drain_is_heard_also_by_one_that_was_cancelled_before(self, claimed: Claimed, late: bool) -> None:
        gate, spoiler, message = Gate(), claimed("spoil"), claimed()

        async with crew_of(handler(cancel_and_return, topic="spoil"), handler(gate.handle), concurrency=1) as crew:
            crew.add([spoiler], 0)
            await rest(crew)
            crew.add([message], 0)
            await until(lambda: gate.started)
            if late:
                gate.open.set()
            crew.cancel_running()
            await until(lambda: not crew.running)

            assert ends(crew) == [(spoiler.id, Kind.COMPLETE), (message.id, Kind.RELEASE)]

    async def test_a_lost_message_whose_handler_could_just_go_on_settles_nothing(self, claimed: Claimed) -> None:
        gate, message, following = Gate(), claimed(), claimed()

        async with crew_of(handler(gate.handle), concurrency=1) as crew:
            crew.add([message], 0)
            await until(lambda: gate.started)
            gate.open.set()
            crew.lose([message])
            await until(lambda: not crew.running)
            crew.add([following], 0)
            await until(lambda: crew.settler.waiting)

            assert ends(crew) == [(following.id, Kind.COMPLETE)]

    async def test_of_its_own_and_ours_ours_counts(self, claimed: Claimed) -> None:
        async def cancel_twice(payload: Any) -> None:
            me().cancel()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                await asyncio.sleep(3600)

        message = claimed(run_timeout_s=0.02)
        async with crew_of(handler(cancel_twice)) as crew:
            crew.add([message], 0)
            await until(lambda: crew.settler.waiting)

            assert ends(crew) == [(message.id, Kind.EXPIRE)]

    @Cancelling
    async def test_the_end_ends_all_loops(self, claimed: Claimed, cancelling: Callable[..., Any]) -> None:
        async with crew_of(handler(cancelling), concurrency=3) as crew:
            crew.add([claimed() for _ in range(20)], 0)
            await until(lambda: len(crew.settler.waiting) == 20)
        assert all(task.done() for task in crew._loops)
        assert not crew.left_behind

    async def test_a_handler_that_swallows_the_end_is_the_last_of_its_loop(self, claimed: Claimed) -> None:
        async def swallow(payload: Any) -> None:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                return

        async with crew_of(handler(swallow), concurrency=1) as crew:
            crew.add([claimed()], 0)
            await until(lambda: crew.running)
        assert not crew.left_behind


class TestBatches:
    @Cancelling
    async def test_a_batch_ends_as_its_handler_did_and_frees_its_place(
        self, claimed: Claimed, cancelling: Callable[..., Any]
    ) -> None:
        async with crew_of(batch_handler(cancelling, size=2)) as crew:
            for n in range(1, 4):
                crew.add([claimed("bulk"), claimed("bulk")], 0)
                await until(lambda n=n: len(crew.settler.waiting) == 2 * n)  # type: ignore[misc]

            assert [kind for _, kind in ends(crew)] == [ENDS[cancelling]] * 6
            assert not crew.running

    async def test_a_cancellation_that_hits_the_wait_for_a_thread_fails_the_batch(self, claimed: Claimed) -> None:
        release = threading.Event()

        async with crew_of(batch_handler(lambda payloads: release.wait(60) and None, size=2)) as crew:
            crew.add([claimed("bulk"), claimed("bulk")], 0)
            await until(lambda: crew._batches["bulk"].threads_busy)
            (task,) = crew._batches["bulk"].tasks()
            task.cancel()
            await until(lambda: crew.settler.waiting)
            release.set()

            assert [kind for _, kind in ends(crew)] == [Kind.RETRY] * 2
            await until(lambda: crew._batches["bulk"].room)
