"""The executor: worker loops that run handlers, no more of them than needed, and the limits of messages in flight."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import LogCapture

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind, Settlement
from pgrouse.config import config
from pgrouse.handlers.ack_rules import AckPolicy, AckRules
from pgrouse.handlers.encryption import NoEncryption
from pgrouse.handlers.handler import BatchOptions, ExecutionMode, Handler
from pgrouse.handlers.outcome import Reject, Retry
from pgrouse.process.wake_event import WakeEvents
from pgrouse.worker.execution import single_scheduler
from pgrouse.worker.execution.capacity import Capacity
from pgrouse.worker.execution.executor import HandlerExecutor
from pgrouse.worker.execution.in_flight import InFlight
from pgrouse.worker.execution.settle_buffer import SettleBuffer

Claimed = Callable[..., Message]


def handler(function: Callable[..., Any], concurrency: int | None = None, topic: str = "job") -> Handler:
    mode = ExecutionMode.ASYNC if asyncio.iscoroutinefunction(function) else ExecutionMode.THREAD
    return Handler(topic, "module:function", function, mode, 1, None, concurrency)


def batch_handler(function: Callable[..., Any], size: int, wait_s: float = 0.0) -> Handler:
    options = BatchOptions(size, wait_s, as_items=False)
    return Handler("job", "module:function", function, ExecutionMode.ASYNC, 1, None, None, batch_options=options)


@asynccontextmanager
async def executor_of(*handlers: Handler, **worker: Any) -> AsyncIterator[HandlerExecutor]:
    """An executor. Unless told otherwise it takes nothing ahead, which would depend on how fast this machine is."""
    in_flight, settle_buffer = InFlight(), SettleBuffer(WakeEvents())
    runtime: Any = SimpleNamespace(stopping=False, holds=in_flight.holds, encryption=NoEncryption())
    executor = HandlerExecutor(
        {each.topic: each for each in handlers},
        config.WorkerSettings(**{"prefetch": 0, **worker}),
        in_flight,
        settle_buffer,
        runtime,
        {},
        on_capacity=lambda: None,
    )
    try:
        yield executor
    finally:
        await executor.close()


def ends(executor: HandlerExecutor) -> list[tuple[int, SettleKind]]:
    """The results that wait to be settled."""
    return [(each.message.id, each.kind) for each in executor.settle_buffer.waiting]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - there is no event for what a executor does inside
            await asyncio.sleep(0)


# A message without a timeout, whose handler gets nothing but the payload, is processed without a call object.
WITHOUT_AND_WITH_CALL = pytest.mark.parametrize("timeout_s", [None, 3600.0], ids=["without a call", "with a call"])


class Gate:
    """An async handler whose messages continue when the test lets them."""

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.open = asyncio.Event()

    async def handle(self, payload: Any) -> None:
        self.started.append(payload)
        await self.open.wait()


async def nothing(payload: Any) -> None:
    pass


class TestLoops:
    async def test_running_handlers_never_exceed_the_concurrency(self, claimed: Claimed) -> None:
        gate = Gate()

        async with executor_of(handler(gate.handle), concurrency=3, prefetch=7) as executor:
            executor.add([claimed(payload=str(n)) for n in range(10)], 0)
            await until(lambda: len(gate.started) == 3)
            for _ in range(10):
                await asyncio.sleep(0)

            assert gate.started == [0, 1, 2]
            assert (executor.running, executor.singles.not_started) == (3, 7)
            gate.open.set()
            await until(lambda: len(gate.started) == 10)

    async def test_fewer_handlers_run_at_once_after_it_was_scaled_down(self, claimed: Claimed) -> None:
        gate = Gate()

        async with executor_of(handler(gate.handle), concurrency=4, prefetch=9) as executor:
            executor.add([claimed(payload=str(n)) for n in range(8)], 0)
            await until(lambda: executor.running == 4)
            executor.scale(2)
            assert executor.running == 4, "what runs is not stopped"
            gate.open.set()
            await until(lambda: len(executor.settle_buffer.waiting) == 8)
            gate.open.clear()
            executor.add([claimed(payload=str(n)) for n in range(8, 13)], 0)
            await until(lambda: len(gate.started) == 10)
            for _ in range(10):
                await asyncio.sleep(0)

            assert (executor.running, executor.singles.not_started, len(executor.singles.workers)) == (2, 3, 2)
            gate.open.set()
            await until(lambda: len(executor.settle_buffer.waiting) == 13)

    async def test_a_message_for_which_an_idle_worker_was_woken_is_run_by_another(self, claimed: Claimed) -> None:
        gate = Gate()

        async with executor_of(handler(gate.handle), concurrency=3) as executor:
            executor.add([claimed() for _ in range(3)], 0)
            await until(lambda: executor.running == 3)
            gate.open.set()
            await until(lambda: len(executor.singles.idle_workers) == 3)
            executor.add([claimed()], 0)
            executor.scale(1)
            await until(lambda: len(executor.settle_buffer.waiting) == 4)

            await until(lambda: len(executor.singles.workers) == 1)

    async def test_handlers_that_compute_continuously_yield_to_other_tasks(self, claimed: Claimed) -> None:
        turns = 0

        async def compute(payload: Any) -> None:
            ends_at = time.perf_counter() + single_scheduler.TURN_S / 2
            while time.perf_counter() < ends_at:
                pass

        async with executor_of(handler(compute)) as executor:
            executor.add([claimed() for _ in range(40)], 0)
            while len(executor.settle_buffer.waiting) < 40:
                await asyncio.sleep(0)
                turns += 1

        assert turns >= 40 / 4

    @WITHOUT_AND_WITH_CALL
    async def test_an_internal_error_costs_its_message_an_attempt_and_no_loop(
        self, claimed: Claimed, logged: LogCapture, timeout_s: float | None
    ) -> None:
        broken, fine = claimed(timeout_s=timeout_s), claimed(timeout_s=timeout_s)

        async with executor_of(handler(nothing), concurrency=1) as executor:
            runner: Any = executor.attempts.runners["job"]
            start, start_plain = runner.start, runner.start_plain
            runner.start = lambda call: start(None if call.messages == [broken] else call)
            runner.start_plain = lambda handler, each: start_plain(handler, None if each == broken else each)
            executor.add([broken, fine], 0)
            await until(lambda: len(executor.settle_buffer.waiting) == 2)

        assert ends(executor) == [(broken.id, SettleKind.RETRY), (fine.id, SettleKind.COMPLETE)]
        assert [e["log_level"] for e in logged.entries if e["event"] == "loop.crashed"] == ["error"]


class TestRoom:
    async def test_the_room_never_exceeds_a_batch(self) -> None:
        async with executor_of(handler(nothing), concurrency=100, claim_batch_size=7) as executor:
            assert executor.capacity().limit == 7

    async def test_unsettled_results_reduce_the_room(self, claimed: Claimed) -> None:
        async with executor_of(handler(nothing), concurrency=5, claim_batch_size=10) as executor:
            for _ in range(4):
                assert executor.capacity().limit > 0
                executor.add([claimed() for _ in range(5)], 0)
                await until(lambda: not executor.singles.not_started)

            assert executor.capacity().limit == 0

    async def test_a_topic_at_its_limit_is_excluded_and_its_free_slot_is_reported(self, claimed: Claimed) -> None:
        gate, reported = Gate(), []

        async with executor_of(handler(gate.handle, 2), handler(nothing, topic="other")) as executor:
            executor.on_capacity = lambda: reported.append(True)
            executor.add([claimed()], 0)
            assert executor.capacity().slots == [1, None]
            executor.add([claimed()], 0)
            assert executor.capacity() == Capacity(["other"], [None], 98)
            await until(lambda: executor.running == 2)
            gate.open.set()
            await until(lambda: not executor.running)

            assert executor.capacity() == Capacity(["job", "other"], [2, None], 100)
        assert reported == [True], "only the first of the two free slots is reported"

    async def test_handlers_in_threads_are_bounded_by_the_threads(self) -> None:
        async with executor_of(handler(lambda payload: None, 50), threads=3) as executor:
            assert executor.capacity().slots == [3]


class TestLosing:
    async def test_a_loss_of_the_old_claim_does_not_affect_a_message_claimed_again(
        self, claimed: Claimed, logged: LogCapture
    ) -> None:
        gate, old = Gate(), claimed()
        new = old._replace(claim_id=old.claim_id + 1)

        async with executor_of(handler(gate.handle)) as executor:
            executor.add([old], 0)
            await until(lambda: executor.running == 1)
            executor.add([new], 0)
            await until(lambda: executor.running == 2)
            executor.on_lock_lost([old])
            await until(lambda: executor.running == 1)

            assert (executor.in_flight.holds(new), ends(executor)) == (True, [])
            gate.open.set()
            await until(lambda: executor.settle_buffer.waiting)
            assert [each.message.claim_id for each in executor.settle_buffer.waiting] == [new.claim_id]
        assert [e["event"] for e in logged.entries] == ["message.lock_lost"]

    async def test_a_lost_message_whose_handler_ends_normally_is_not_settled(self, claimed: Claimed) -> None:
        async def swallow(payload: Any) -> None:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)

        message = claimed()
        async with executor_of(handler(swallow)) as executor:
            executor.add([message], 0)
            await until(lambda: executor.running)
            await asyncio.sleep(0)
            executor.on_lock_lost([message])
            await until(lambda: not executor.running)

            assert ends(executor) == []

    async def test_a_lost_message_that_has_ended_is_left_to_the_settler(
        self, claimed: Claimed, logged: LogCapture
    ) -> None:
        message = claimed()

        async with executor_of(handler(nothing)) as executor:
            executor.add([message], 0)
            await until(lambda: executor.settle_buffer.waiting)
            executor.on_lock_lost([message])

            assert ends(executor) == [(message.id, SettleKind.COMPLETE)]
        assert logged.entries == []


class TestStopping:
    async def test_waiting_and_still_arriving_messages_are_released(self, claimed: Claimed) -> None:
        gate = Gate()
        running, waiting, late = claimed(), claimed(), claimed()

        async with executor_of(handler(gate.handle), concurrency=1, prefetch=1) as executor:
            executor.add([running, waiting], 0)
            await until(lambda: executor.running)
            executor.release_waiting()
            executor.add([late], 0)
            gate.open.set()
            await until(lambda: not executor.running)

        assert ends(executor) == [
            (waiting.id, SettleKind.RELEASE),
            (late.id, SettleKind.RELEASE),
            (running.id, SettleKind.COMPLETE),
        ]

    async def test_messages_of_handlers_that_do_not_end_are_released(self, claimed: Claimed) -> None:
        gate, message = Gate(), claimed()

        async with executor_of(handler(gate.handle)) as executor:
            executor.add([message], 0)
            await until(lambda: executor.running)
            executor.release_running()

            assert ends(executor) == [(message.id, SettleKind.RELEASE)]
            gate.open.set()

    async def test_every_end_wakes_a_drain_even_if_nothing_is_settled(self, claimed: Claimed) -> None:
        gate = Gate()

        async with executor_of(handler(gate.handle)) as executor:
            drain = executor.settle_buffer.wake_events.new()
            executor.add([claimed()], 0)
            await until(lambda: executor.running)
            executor.settle_buffer.add([Settlement(claimed(), SettleKind.COMPLETE)])
            executor.release_waiting()
            await drain.wait()
            gate.open.set()

            assert await drain.wait(timeout_s=60)
            assert not executor.running


async def behave(payload: Any) -> Any:
    """Do what the payload says, at once or later."""
    what, _, when = str(payload).partition(" ")
    if when:
        await asyncio.sleep(0)
    match what:
        case "returns":
            return {"output": 1}
        case "rejects":
            return Reject("invalid")
        case "retries":
            raise Retry("5s")
        case "fails":
            raise ValueError("broken")
        case "stops":
            raise StopIteration(7)
        case "exits":
            sys.exit(3)
        case "generates":
            return (each for each in "abc")
    return None


BEHAVIOURS = (
    "returns", "rejects", "retries", "fails", "stops", "exits", "generates", "nothing",
    "returns later", "retries later", "fails later", "nothing later",
)  # fmt: skip


class TestWithoutCall:
    @pytest.mark.parametrize("rules", [AckRules(), AckRules(AckPolicy.MANUAL), AckRules(AckPolicy.ACK)])
    async def test_messages_end_as_they_do_with_a_call(self, claimed: Claimed, rules: AckRules) -> None:
        payloads = [*map(json.dumps, BEHAVIOURS), "no JSON"]
        ended = []

        for timeout_s in (None, 3600.0):
            async with executor_of(replace(handler(behave), rules=rules), concurrency=1) as executor:
                messages = [claimed(payload=each, timeout_s=timeout_s) for each in payloads]
                executor.add(messages, 0)
                await until(lambda: len(executor.settle_buffer.waiting) == len(payloads))
                settled = {each.message.id: each for each in executor.settle_buffer.waiting}
                executor.metrics.flush()
                runs = sum(executor.metrics.for_topic("job").runs.counts)
                ended.append((runs, [_without_message(settled[each.id]) for each in messages]))

        assert ended[0] == ended[1]

    async def test_an_awaitable_that_is_no_coroutine_is_awaited(self, claimed: Claimed) -> None:
        def returns_a_future(payload: Any) -> Any:
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            future.set_result(payload + 1)
            return future

        decorated = replace(handler(nothing), function=returns_a_future)
        async with executor_of(decorated) as executor:
            executor.add([claimed(payload="6")], 0)
            await until(lambda: executor.settle_buffer.waiting)

            assert [each.output for each in executor.settle_buffer.waiting] == ["7"]

    async def test_a_function_that_raises_at_its_call_has_failed(self, claimed: Claimed) -> None:
        def raises(payload: Any) -> Any:
            raise ValueError("at once")

        async with executor_of(replace(handler(nothing), function=raises)) as executor:
            executor.add([claimed()], 0)
            await until(lambda: executor.settle_buffer.waiting)

            assert [(each.kind, each.error_type) for each in executor.settle_buffer.waiting] == [
                (SettleKind.RETRY, "ValueError")
            ]
            executor.metrics.flush()
            assert sum(executor.metrics.for_topic("job").runs.counts) == 1


def _without_message(ended: Settlement) -> tuple[Any, ...]:
    error = None if ended.error is None else ended.error.rstrip().rsplit("\n")[-1]
    return ended.kind, ended.output, error, ended.after, ended.error_type, ended.warnings


class TestTime:
    async def test_the_start_of_a_handler_with_a_timeout_is_known_during_its_first_step(self, claimed: Claimed) -> None:
        async def look(payload: Any) -> None:
            in_flight = executor.in_flight
            starts.extend(in_flight.started_at(each) is not None for each, _ in in_flight.snapshot())

        starts: list[bool] = []
        async with executor_of(handler(look)) as executor:
            executor.add([claimed(timeout_s=60.0)], 0)
            await until(lambda: executor.settle_buffer.waiting)

        assert starts == [True], "a handler that blocks the event loop keeps its lock no longer than its timeout"

    async def test_the_next_message_of_a_loop_has_its_own_timeout(self, claimed: Claimed) -> None:
        naps = iter([60, 0.03])

        async def nap(payload: Any) -> None:
            await asyncio.sleep(next(naps))

        async with executor_of(handler(nap), concurrency=1, prefetch=1) as executor:
            late, fine = claimed(timeout_s=0.02), claimed(timeout_s=60)
            executor.add([late, fine], 0)
            await until(lambda: len(executor.settle_buffer.waiting) == 2)

        assert ends(executor) == [(late.id, SettleKind.EXPIRE), (fine.id, SettleKind.COMPLETE)]

    async def test_a_swallowed_cancellation_does_not_affect_the_next_message(self, claimed: Claimed) -> None:
        seen: list[int] = []

        async def swallow(payload: Any) -> None:
            me = asyncio.current_task()
            assert me is not None
            seen.append(me.cancelling())
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                seen.append(me.cancelling())

        async with executor_of(handler(swallow), concurrency=1, prefetch=1) as executor:
            executor.add([claimed(timeout_s=0.01), claimed()], 0)
            await until(lambda: len(executor.settle_buffer.waiting) == 2)

        assert seen == [0, 1, 0]
