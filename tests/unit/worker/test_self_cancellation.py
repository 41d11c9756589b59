"""Handlers that cancel their own task, or leave a cancellation behind: they fail, and the executor loses no slot."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import LogCapture

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind
from pgrouse.handlers.ack_rules import AckPolicy, AckRules
from pgrouse.handlers.handler import ExecutionMode, Handler
from pgrouse.worker.execution.executor import HandlerExecutor
from tests.unit.handlers.test_batch import batch_handler
from tests.unit.worker.test_executor import Gate, ends, executor_of, handler, nothing, until

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
    """As timeouts do that were written before tasks counted their cancellations."""
    me().cancel()
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        return


async def cancel_when_it_is_over(payload: Any) -> None:
    """As a timer does that was not cancelled."""
    asyncio.get_running_loop().call_soon(me().cancel)


ENDS = {
    cancel_and_wait: SettleKind.RETRY,
    cancel_and_wait_long: SettleKind.RETRY,
    cancel_and_return: SettleKind.COMPLETE,
    cancel_often_and_return: SettleKind.COMPLETE,
    cancel_and_swallow: SettleKind.COMPLETE,
    cancel_when_it_is_over: SettleKind.COMPLETE,
}
Cancelling = pytest.mark.parametrize("cancelling", ENDS, ids=lambda each: each.__name__)


async def rest(executor: HandlerExecutor) -> None:
    """Let the loops of an executor become idle."""
    await until(lambda: len(executor.singles.idle_workers) == len(executor.singles.workers) and not executor.running)
    for _ in range(5):
        await asyncio.sleep(0)


def all_live(executor: HandlerExecutor) -> bool:
    return not any(task.done() or task.cancelling() for task in executor.singles.workers)


@Cancelling
async def test_a_self_cancellation_costs_no_worker_loop(claimed: Claimed, cancelling: Callable[..., Any]) -> None:
    async with executor_of(handler(cancelling), concurrency=1) as executor:
        for n in range(3):
            executor.add([claimed()], 0)
            await until(lambda n=n: len(executor.settle_buffer.waiting) > n)  # type: ignore[misc]
            await rest(executor)
            assert all_live(executor)

        assert [kind for _, kind in ends(executor)] == [ENDS[cancelling]] * 3
        assert len(executor.singles.workers) == len(executor.singles.idle_workers) == 1
    assert not executor.has_unstoppable


@Cancelling
async def test_a_self_cancellation_does_not_affect_the_next_message_of_the_loop(
    claimed: Claimed, cancelling: Callable[..., Any]
) -> None:
    counts: list[int] = []

    async def observe(payload: Any) -> None:
        counts.append(me().cancelling())
        async with asyncio.timeout(60):
            await asyncio.sleep(0.001)
        counts.append(me().cancelling())

    async with executor_of(handler(cancelling), handler(observe, topic="next"), concurrency=1, prefetch=1) as executor:
        executor.add([claimed()], 0)
        await rest(executor)
        executor.add([claimed(), claimed("next")], 0)
        await until(lambda: len(executor.settle_buffer.waiting) == 3)

        if cancelling is cancel_when_it_is_over:
            # It cannot be known from outside which message a late timer belongs to.
            assert counts[0] == 0
        else:
            assert [kind for _, kind in ends(executor)][-1] == SettleKind.COMPLETE
            assert counts == [0, 0]


async def test_a_self_cancellation_after_the_completion_is_only_logged(claimed: Claimed, logged: LogCapture) -> None:
    first = Handler("job", "m:f", cancel_and_wait, ExecutionMode.ASYNC, 1, None, rules=AckRules(AckPolicy.ACK_FIRST))
    message = claimed()

    async def complete_first(messages: list[Message]) -> list[int]:
        return []

    async with executor_of(first, concurrency=1) as executor:
        executor.runtime.complete_first = complete_first  # type: ignore[method-assign]
        executor.add([message], 0)
        await until(lambda: executor.singles.workers and not executor.running and not executor.singles.not_started)
        await rest(executor)

        assert all_live(executor)
        assert ends(executor) == []
    (event,) = [each for each in logged.entries if each["event"] == "message.ended_after_completion"]
    assert event["message_id"] == message.id
    assert "CancelledError" in event["reason"]


async def test_a_cancellation_during_the_wait_for_a_thread_fails_that_message(claimed: Claimed) -> None:
    release = threading.Event()
    threaded, fine = claimed(), claimed("fine")

    async with executor_of(
        handler(lambda payload: release.wait(60)), handler(nothing, topic="fine"), concurrency=1
    ) as executor:
        executor.add([threaded], 0)
        await until(lambda: executor.running and executor.threads.busy)
        (loop,) = executor.singles.workers
        loop.cancel()
        await until(lambda: executor.settle_buffer.waiting)
        release.set()
        executor.add([fine], 0)
        await until(lambda: len(executor.settle_buffer.waiting) == 2)

        assert ends(executor) == [(threaded.id, SettleKind.RETRY), (fine.id, SettleKind.COMPLETE)]
        await until(lambda: not executor.threads.busy)


class TestOurs:
    @pytest.mark.parametrize("late", [False, True], ids=["before", "in the moment in which it could go on"])
    async def test_a_drain_reaches_a_handler_that_was_cancelled_before(self, claimed: Claimed, late: bool) -> None:
        gate, spoiler, message = Gate(), claimed("spoil"), claimed()

        async with executor_of(
            handler(cancel_and_return, topic="spoil"), handler(gate.handle), concurrency=1
        ) as executor:
            executor.add([spoiler], 0)
            await rest(executor)
            executor.add([message], 0)
            await until(lambda: gate.started)
            if late:
                gate.open.set()
            executor.cancel_running()
            await until(lambda: not executor.running)

            assert ends(executor) == [(spoiler.id, SettleKind.COMPLETE), (message.id, SettleKind.RELEASE)]

    async def test_a_lost_message_whose_handler_continues_is_not_settled(self, claimed: Claimed) -> None:
        gate, message, following = Gate(), claimed(), claimed()

        async with executor_of(handler(gate.handle), concurrency=1) as executor:
            executor.add([message], 0)
            await until(lambda: gate.started)
            gate.open.set()
            executor.on_lock_lost([message])
            await until(lambda: not executor.running)
            executor.add([following], 0)
            await until(lambda: executor.settle_buffer.waiting)

            assert ends(executor) == [(following.id, SettleKind.COMPLETE)]

    async def test_a_cancellation_by_the_worker_overrides_that_of_the_handler(self, claimed: Claimed) -> None:
        async def cancel_twice(payload: Any) -> None:
            me().cancel()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                await asyncio.sleep(3600)

        message = claimed(timeout_s=0.02)
        async with executor_of(handler(cancel_twice)) as executor:
            executor.add([message], 0)
            await until(lambda: executor.settle_buffer.waiting)

            assert ends(executor) == [(message.id, SettleKind.EXPIRE)]

    async def test_a_handler_that_swallows_the_stop_is_the_last_of_its_loop(self, claimed: Claimed) -> None:
        async def swallow(payload: Any) -> None:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                return

        async with executor_of(handler(swallow), concurrency=1) as executor:
            executor.add([claimed()], 0)
            await until(lambda: executor.running)
        assert not executor.has_unstoppable


class TestBatches:
    @Cancelling
    async def test_a_batch_ends_with_its_handler_and_frees_its_slot(
        self, claimed: Claimed, cancelling: Callable[..., Any]
    ) -> None:
        async with executor_of(batch_handler(cancelling, size=2)) as executor:
            for n in range(1, 4):
                executor.add([claimed("bulk"), claimed("bulk")], 0)
                await until(lambda n=n: len(executor.settle_buffer.waiting) == 2 * n)  # type: ignore[misc]

            assert [kind for _, kind in ends(executor)] == [ENDS[cancelling]] * 6
            assert not executor.running
