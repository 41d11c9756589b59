"""Batch handlers without a database.

Their arguments, the outcome of each message, and how batches are collected and stopped are tested.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, TypeAdapter
from structlog.testing import LogCapture

from pgrouse import Defer, Fail, LockLost, Reject, Retry
from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind, Settlement
from pgrouse.config import config
from pgrouse.errors import ConfigError
from pgrouse.handlers.ack_rules import AckPolicy, AckRules, RetryStrategy
from pgrouse.handlers.batch.batch import Batch, BatchContext, Item
from pgrouse.handlers.declaration import loader as handlers
from pgrouse.handlers.encryption import NoEncryption
from pgrouse.handlers.handler import BatchOptions, ExecutionMode, Handler
from pgrouse.values.error_line import ERROR_BYTES
from pgrouse.worker.execution.capacity import Capacity
from pgrouse.worker.execution.schema_cache import SchemaCache
from tests.unit.worker.test_executor import Gate, ends, executor_of, nothing, until
from tests.unit.worker.test_executor import handler as single

Claimed = Callable[..., Message]

HELD: Any = SimpleNamespace(stopping=False, holds=lambda message: True, encryption=NoEncryption())


class Order(BaseModel):
    id: int


def batch_handler(
    function: Callable[..., Any],
    size: int = 10,
    *,
    topic: str = "bulk",
    wait_s: float = 0.0,
    items: bool = False,
    arguments: int = 1,
    payload: Any = None,
    slots: int = 1,
    rules: AckRules = AckRules(),  # noqa: B008 - frozen
) -> Handler:
    mode = ExecutionMode.ASYNC if asyncio.iscoroutinefunction(function) else ExecutionMode.THREAD
    adapter = None if payload is None else TypeAdapter(payload)
    return Handler(
        topic, "module:function", function, mode, arguments, adapter, slots, rules, BatchOptions(size, wait_s, items)
    )


def run(function: Callable[..., Any], messages: list[Message], runtime: Any = HELD, **more: Any) -> list[Settlement]:
    """The results of the messages of one batch, the handler being called directly."""
    batch = Batch(batch_handler(function, **more), messages, runtime)
    output: object
    try:
        output = batch.call()
    except BaseException as error:  # noqa: BLE001
        output = error
    return batch.to_settlements(output)


def kinds(ended: list[Settlement]) -> list[SettleKind]:
    return [each.kind for each in ended]


@pytest.fixture
def three(claimed: Claimed) -> list[Message]:
    return [claimed("bulk", payload=str(n)) for n in range(3)]


class TestReturning:
    def test_a_list_has_an_output_or_an_outcome_for_each(self, claimed: Claimed) -> None:
        messages = [claimed("bulk") for _ in range(7)]
        outcomes = [
            {"kept": 1},
            None,
            Reject("bad"),
            Retry(timedelta(1)),
            Fail("gone"),
            Defer(timedelta(2)),
            KeyError("x"),
        ]

        ended = run(lambda payloads: outcomes, messages)

        assert kinds(ended) == ["complete", "complete", "reject", "retry", "fail", "defer", "retry"]
        assert [ended[0].output, ended[1].output] == ['{"kept": 1}', None]
        assert (ended[2].error, ended[3].after, ended[5].after) == ("bad", timedelta(1), timedelta(2))
        assert (ended[6].error or "").rstrip() == "KeyError: 'x'"

    @pytest.mark.parametrize(
        ("returned", "error"),
        [([1, 2], "a list of 2"), ([], "a list of 0"), ({"a": 1}, "a dict"), (7, "a int"), ("abc", "a str")],
    )
    def test_an_invalid_return_value_fails_all_messages_with_the_reason(
        self, three: list[Message], returned: Any, error: str
    ) -> None:
        ended = run(lambda payloads: returned, three)

        assert kinds(ended) == [SettleKind.RETRY] * 3
        assert (
            f"in a batch of 3: TypeError: the handler returned {error} for 3 messages: "
            "return None, or a list with one outcome for each" in (ended[0].error or "")
        )

    def test_an_output_that_cannot_be_stored_is_dropped_for_its_message_alone(self, three: list[Message]) -> None:
        ended = run(lambda payloads: [1, {object()}, 3], three)

        assert kinds(ended) == [SettleKind.COMPLETE] * 3
        assert [each.output for each in ended] == ["1", None, "3"]
        assert (ended[1].error or "").startswith("the output was dropped")


class TestRaising:
    def test_a_long_error_keeps_the_hint_and_its_end(self, three: list[Message]) -> None:
        def shout(payloads: list[int]) -> None:
            raise ExceptionGroup("many", [ValueError(str(n) * 900) for n in range(10)])

        error = run(shout, three)[0].error or ""

        assert error.startswith("in a batch of 3: ")
        assert "9" * 900 in error
        assert "0" * 900 not in error
        assert len(error.encode()) <= ERROR_BYTES

    def test_an_outcome_applies_to_all_messages(self, three: list[Message]) -> None:
        def shut(payloads: list[int]) -> None:
            raise Retry(timedelta(minutes=1), reason="the shop is shut")

        ended = run(shut, three)

        assert kinds(ended) == [SettleKind.RETRY] * 3
        assert {(each.after, each.error) for each in ended} == {
            (timedelta(minutes=1), "the shop is shut; no attempt follows: max_attempts is 1")
        }

    def test_a_lost_lock_outside_a_transaction_is_a_normal_failure(self, three: list[Message]) -> None:
        def lose(payloads: list[int]) -> None:
            raise LockLost("of another message")

        assert kinds(run(lose, three)) == [SettleKind.RETRY] * 3

    def test_a_strategy_is_asked_once_for_each_message_with_remaining_attempts(self, claimed: Claimed) -> None:
        def divide(payloads: list[int]) -> None:
            raise ZeroDivisionError("by zero")

        def strategy(attempt: int, elapsed: timedelta, error: BaseException) -> int:
            asked.append(attempt)
            return attempt * 10

        asked: list[int] = []
        messages = [claimed("bulk", attempt=attempt, max_attempts=3) for attempt in (1, 2, 3)]
        ended = run(divide, messages, rules=AckRules(strategy=RetryStrategy("module:strategy", strategy)))

        assert asked == [1, 2]
        assert [each.after for each in ended] == [timedelta(seconds=10), timedelta(seconds=20), None]

    def test_the_topics_ack_policy_decides_the_result_of_an_exception(self, three: list[Message]) -> None:
        def divide(payloads: list[int]) -> None:
            raise ZeroDivisionError("by zero")

        ended = run(divide, three, rules=AckRules(AckPolicy.REJECT_ON_ERROR))

        assert kinds(ended) == [SettleKind.REJECT] * 3


class TestItems:
    def test_items_have_the_attributes_of_a_context(self, claimed: Claimed) -> None:
        message = claimed(
            "bulk",
            payload="7",
            channel="c",
            key="k",
            attempt=2,
            max_attempts=3,
            headers='{"h": 1}',
            state='{"page": 4}',
        )
        seen: list[Item[int]] = []

        run(seen.extend, [message], items=True)

        (item,) = seen
        assert (item.id, item.payload, item.channel, item.key) == (message.id, 7, "c", "k")
        assert (item.attempt, item.max_attempts, item.headers, item.state) == (2, 3, {"h": 1}, {"page": 4})
        assert not item.lost

    def test_the_first_outcome_of_an_item_counts_and_the_second_call_raises(self, claimed: Claimed) -> None:
        counted: list[bool] = []

        def change_mind(items: list[Item[int]]) -> list[Any]:
            counted.extend([items[0].reject("bad"), items[0].complete(), items[0].retry()])
            return [{"too": "late"}]

        ended = run(change_mind, [claimed("bulk")], items=True)

        assert counted == [True, False, False]
        assert kinds(ended) == [SettleKind.REJECT]

    def test_an_outcome_after_the_end_does_not_count(self, claimed: Claimed) -> None:
        kept: list[Item[int]] = []
        run(kept.extend, [claimed("bulk")], items=True)

        assert kept[0].reject("too late") is False

    def test_a_list_that_the_handler_changes_is_its_own(self, three: list[Message]) -> None:
        def consume(items: list[Item[int]]) -> list[int]:
            return [items.pop().payload for _ in range(3)]

        assert [each.output for each in run(consume, three, items=True)] == ["2", "1", "0"]


class TestPayloads:
    def test_a_validator_that_fails_affects_its_message_alone(self, claimed: Claimed) -> None:
        def explode(value: Any) -> Any:
            return {"a": 1}[value]

        messages = [claimed("bulk", payload='"a"'), claimed("bulk", payload='"b"')]

        ended = run(lambda values: None, messages, payload=Annotated[str, AfterValidator(explode)])

        assert kinds(ended) == [SettleKind.COMPLETE, SettleKind.RETRY]
        assert (ended[1].error or "").rstrip().endswith("KeyError: 'b'")

    def test_a_batch_of_only_invalid_payloads_runs_no_handler(self, claimed: Claimed) -> None:
        def never(orders: list[Order]) -> None:
            pytest.fail("it was called")

        ended = run(never, [claimed("bulk", payload="{}"), claimed("bulk", payload="[")], payload=Order)

        assert kinds(ended) == [SettleKind.REJECT, SettleKind.REJECT]


class TestContext:
    def test_the_context_has_the_topic_and_the_shortest_timeout(self, claimed: Claimed) -> None:
        seen: list[BatchContext] = []
        times = [None, 30.0, 20.0]
        messages = [claimed("bulk", timeout_s=each) for each in times]

        run(lambda payloads, ctx: seen.append(ctx), messages, arguments=2)

        (ctx,) = seen
        assert ctx.topic == "bulk"
        assert ctx.time_left_s is not None
        assert 10 < ctx.time_left_s <= 20
        assert (ctx.stopping, ctx.completed) == (False, False)

    def test_a_batch_without_timeouts_has_none(self, three: list[Message]) -> None:
        seen: list[float | None] = []

        run(lambda payloads, ctx: seen.append(ctx.time_left_s), three, arguments=2)

        assert seen == [None]

    def test_a_batch_is_lost_when_all_items_are_and_an_item_when_its_own_lock_is(self, three: list[Message]) -> None:
        held = set(three)
        runtime = SimpleNamespace(stopping=False, holds=held.__contains__, encryption=NoEncryption())
        seen: list[Any] = []

        def check(items: list[Item[int]], ctx: BatchContext) -> None:
            held.discard(three[1])
            seen.append([item.lost for item in items])
            ctx.heartbeat()
            held.clear()
            with pytest.raises(LockLost, match="no message of this batch"):
                ctx.heartbeat()

        run(check, three, runtime, items=True, arguments=2)

        assert seen == [[False, True, False]]


class TestGathering:
    async def test_topics_are_not_mixed_and_other_topics_are_not_batched(self, claimed: Claimed) -> None:
        seen: list[tuple[str, Any]] = []

        async def first(payloads: list[Any]) -> None:
            seen.append(("first", payloads))

        async def second(payloads: list[Any]) -> None:
            seen.append(("second", payloads))

        async def one(payload: Any) -> None:
            seen.append(("one", payload))

        messages = [
            claimed(topic, payload=str(n)) for n, topic in enumerate(["first", "first", "job", "second", "second"])
        ]
        async with executor_of(
            batch_handler(first, topic="first"), batch_handler(second, topic="second"), single(one)
        ) as executor:
            executor.add(messages, 0)
            await until(lambda: len(executor.settle_buffer.waiting) == 5)

        assert sorted(seen, key=str) == [("first", [0, 1]), ("one", 2), ("second", [3, 4])]

    async def test_the_first_message_waits_for_more_up_to_the_batch_wait(self, claimed: Claimed) -> None:
        sizes: list[int] = []

        async def count(payloads: list[Any]) -> None:
            sizes.append(len(payloads))

        async with executor_of(batch_handler(count, 4, wait_s=0.1)) as executor:
            began = time.monotonic()
            executor.add([claimed("bulk")], 0)
            executor.add([claimed("bulk") for _ in range(2)], 0)
            assert executor.capacity().batches == Capacity(["bulk"], [1], 1)
            assert executor.not_started == 3
            await until(lambda: executor.settle_buffer.waiting)

        assert sizes == [3]
        assert time.monotonic() - began >= 0.1

    async def test_messages_that_arrive_while_all_slots_are_taken_wait_for_one(self, claimed: Claimed) -> None:
        gate = Gate()

        async with executor_of(batch_handler(gate.handle, 2)) as executor:
            executor.add([claimed("bulk", payload=str(n)) for n in range(4)], 0)
            await until(lambda: gate.started)
            await asyncio.sleep(0)

            assert gate.started == [[0, 1]]
            gate.open.set()
            await until(lambda: len(executor.settle_buffer.waiting) == 4)
        assert gate.started == [[0, 1], [2, 3]]


class TestRoom:
    async def test_one_claim_takes_whole_batches_and_no_more_than_a_claim_may(self) -> None:
        async with executor_of(batch_handler(nothing, 50, slots=3), claim_batch_size=70) as executor:
            batches = executor.capacity().batches

            assert batches == Capacity(["bulk"], [150], 150)
            assert batches.per_claim == 50

    async def test_batches_in_threads_are_bounded_by_the_threads(self) -> None:
        async with executor_of(batch_handler(lambda payloads: None, 10, slots=50), threads=3) as executor:
            assert executor.capacity().batches == Capacity(["bulk"], [30], 30)


class TestTime:
    async def test_a_batch_that_exceeds_the_shortest_timeout_expires_its_unsettled_messages(
        self, claimed: Claimed, logged: LogCapture
    ) -> None:
        async def dawdle(items: list[Item[Any]]) -> None:
            items[0].complete("in time")
            await asyncio.sleep(60)

        messages = [claimed("bulk", timeout_s=each) for each in (60.0, 0.02, None)]
        async with executor_of(batch_handler(dawdle, items=True)) as executor:
            executor.add(messages, 0)
            await until(lambda: len(executor.settle_buffer.waiting) == 3)

        assert [kind for _, kind in ends(executor)] == [SettleKind.COMPLETE, SettleKind.EXPIRE, SettleKind.EXPIRE]
        assert (
            executor.settle_buffer.waiting[1].error
            == "in a batch of 3: lock_expired: the handler ran longer than its timeout of 0.02 s"
        )
        (event,) = [e for e in logged.entries if e["event"] == "attempt.timed_out"]
        assert (event["messages"], event["message_id"]) == (2, messages[1].id)

    async def test_a_thread_keeps_its_slot_and_its_late_outcomes_do_not_count(self, claimed: Claimed) -> None:
        release, counted = threading.Event(), []

        def block(items: list[Item[Any]]) -> None:
            release.wait(60)
            counted.append(items[0].complete())

        async with executor_of(batch_handler(block, items=True)) as executor:
            message = claimed("bulk", timeout_s=0.02)
            executor.add([message], 0)
            await until(lambda: executor.settle_buffer.waiting)

            assert ends(executor) == [(message.id, SettleKind.EXPIRE)]
            assert executor.capacity().batches == Capacity([], [], 0)
            assert executor.has_unstoppable
            release.set()
            await until(lambda: executor.capacity().batches == Capacity(["bulk"], [10], 10))
        assert counted == [False]
        assert not executor.has_unstoppable
        assert len(executor.settle_buffer.waiting) == 1


class TestStopping:
    async def test_messages_that_arrive_after_the_stop_do_not_begin_even_if_a_slot_is_free(
        self, claimed: Claimed
    ) -> None:
        late = claimed("bulk")

        async with executor_of(batch_handler(nothing)) as executor:
            executor.release_waiting()
            executor.add([late], 0)

            assert executor.running == 0
        assert ends(executor) == [(late.id, SettleKind.RELEASE)]

    async def test_a_cancelled_batch_keeps_its_outcomes_and_releases_the_rest(self, claimed: Claimed) -> None:
        async def begin(items: list[Item[Any]]) -> None:
            items[0].complete()
            await asyncio.sleep(60)

        first, second = claimed("bulk"), claimed("bulk")
        async with executor_of(batch_handler(begin, items=True)) as executor:
            executor.add([first, second], 0)
            await until(lambda: executor.running)
            await asyncio.sleep(0)
            executor.cancel_running()
            await until(lambda: not executor.running)

        assert ends(executor) == [(first.id, SettleKind.COMPLETE), (second.id, SettleKind.RELEASE)]

    async def test_a_batch_stopped_before_its_first_step_ends(self, claimed: Claimed) -> None:
        message = claimed("bulk")

        async with executor_of(batch_handler(nothing)) as executor:
            executor.add([message], 0)
            executor.cancel_running()
            await until(lambda: not executor.running)

            assert ends(executor) == [(message.id, SettleKind.RELEASE)]
            assert executor.capacity().batches == Capacity(["bulk"], [10], 10)


async def test_an_outcome_that_cannot_be_formatted_costs_an_attempt_and_frees_the_slot(
    claimed: Claimed, logged: LogCapture
) -> None:
    class Untellable(Reject):
        def __str__(self) -> str:
            raise ZeroDivisionError

    async def say(payloads: list[Any]) -> list[Any]:
        return [None, Untellable("?")]

    messages = [claimed("bulk"), claimed("bulk")]
    async with executor_of(batch_handler(say)) as executor:
        executor.add(messages, 0)
        await until(lambda: len(executor.settle_buffer.waiting) == 2)

        assert {kind for _, kind in ends(executor)} == {SettleKind.RETRY}
        assert executor.capacity().batches == Capacity(["bulk"], [10], 10)
    assert [e["loop"] for e in logged.entries if e["event"] == "loop.crashed"] == ["batch"]


async def test_an_ignored_exception_is_logged_once_for_the_batch(claimed: Claimed, logged: LogCapture) -> None:
    async def fail_midway(payloads: list[Any]) -> None:
        raise OSError("disk full")

    messages = [claimed("bulk") for _ in range(3)]
    async with executor_of(batch_handler(fail_midway, rules=AckRules(AckPolicy.ACK))) as executor:
        executor.add(messages, 0)
        await until(lambda: len(executor.settle_buffer.waiting) == 3)

    (event,) = logged.entries
    assert (event["event"], event["messages"], event["message_id"]) == ("attempt.error_ignored", 3, messages[0].id)
    assert event["reason"].endswith("OSError: disk full")


async def test_messages_without_a_handler_run_are_settled_before_it_runs(claimed: Claimed) -> None:
    gate, schemas = Gate(), SchemaCache()
    schemas.update([("bulk", '{"type": "number"}')])
    fine, invalid = claimed("bulk", payload="1"), claimed("bulk", payload='"a"')

    async with executor_of(batch_handler(gate.handle)) as executor:
        executor.attempts.schemas = schemas
        executor.add([fine, invalid], 0)
        await until(lambda: gate.started)

        assert (gate.started, ends(executor)) == ([[1]], [(invalid.id, SettleKind.REJECT)])
        gate.open.set()
        await until(lambda: not executor.running)
        assert ends(executor)[1:] == [(fine.id, SettleKind.COMPLETE)]


MODULE = """
from collections.abc import Sequence
from typing import Annotated, Any
import pydantic
from pgrouse import Item

class Order(pydantic.BaseModel):
    id: int

def payloads(orders: list[Order], ctx): ...
def items(orders: list[Item[Order]]): ...
def plain_items(items: list[Item], ctx): ...
def sequence(orders: Sequence[Order]): ...
def bare(orders: list): ...
def silent(orders): ...
def anything(orders: Any): ...
def one(order: Order): ...
def item(order: Item[Order]): ...
def mapping(order: dict[str, int]): ...
def nothing(): ...
async def coroutine(orders: list[Order]): ...
"""


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Handler]]:
    """Load a configuration whose topic `job` has this handler and these lines.

    It is called as `load("payloads", "batch_size = 10")`.
    """
    (tmp_path / "bulk_jobs.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)

    def load(function: str, *lines: str, worker: str = "") -> dict[str, Handler]:
        head = f"[worker]\n{worker}\n" if worker else ""
        body = "\n".join(['[topics."job"]', f'handler = "bulk_jobs:{function}"', *lines])
        (tmp_path / "pgrouse.toml").write_text(head + body + "\n")
        return handlers.load(config.load(tmp_path / "pgrouse.toml", environ={}))

    return load


class TestSignature:
    @pytest.mark.parametrize(
        ("function", "as_items", "payload"),
        [
            ("payloads", False, "Order"),
            ("items", True, "Order"),
            ("plain_items", True, None),
            ("sequence", False, "Order"),
            ("bare", False, None),
            ("silent", False, None),
            ("anything", False, None),
            ("coroutine", False, "Order"),
        ],
    )
    def test_the_annotation_determines_the_type_of_the_items(
        self, load: Callable[..., dict[str, Handler]], function: str, as_items: bool, payload: str | None
    ) -> None:
        handler = load(function, "batch_size = 10", 'batch_timeout = "200ms"')["job"]

        assert handler.batch_options == BatchOptions(10, 0.2, as_items)
        found = None if handler.payload is None else handler.payload._type.__name__  # type: ignore[attr-defined]
        assert found == payload

    def test_batches_run_one_at_a_time_unless_concurrency_is_higher(
        self, load: Callable[..., dict[str, Handler]]
    ) -> None:
        assert load("payloads", "batch_size = 10")["job"].concurrency == 1
        assert load("payloads", "batch_size = 10", 'isolation = "process"')["job"].concurrency == 1
        assert load("payloads", "batch_size = 10", "concurrency = 3")["job"].concurrency == 3

    def test_a_list_without_batch_is_one_payload(self, load: Callable[..., dict[str, Handler]]) -> None:
        handler = load("payloads")["job"]

        assert handler.batch_options is None
        assert handler.payload is not None
        assert [order.id for order in handler.payload.validate_python([{"id": 1}])] == [1]


class TestRefused:
    @pytest.mark.parametrize(
        ("function", "lines", "says"),
        [
            ("payloads", ["batch_size = 0"], ':3: topics.job.batch_size: must be at least 1, found 0'),
            ("payloads", ["batch_size = 10001"], ":3: topics.job.batch_size: must be at most 10000, found 10001"),
            ("payloads", ['batch_size = "9"'], ":3: topics.job.batch_size: expected a whole number, found '9'"),
            ("payloads", ["batch_size = 9", 'batch_timeout = "2m"'],
                ":4: topics.job.batch_timeout: must be between 0s and 1m, found 2m"),
            ("payloads", ['batch_timeout = "1s"'],
                ":3: topics.job.batch_timeout: nothing is gathered without batch_size: "
                "add batch_size = 100, say, or remove it"),
            ("one", ["batch_size = 9"],
                ":3: topics.job.batch_size: bulk_jobs:one takes Order, but gets a list of at most 9: "
                "annotate its first argument as list[Order], or remove batch_size"),
            ("mapping", ["batch_size = 9"],
                ":3: topics.job.batch_size: bulk_jobs:mapping takes dict[str, int], but gets a list"),
            ("item", ["batch_size = 9"],
                ":3: topics.job.batch_size: bulk_jobs:item takes Item[Order], but gets a list of at most 9: "
                "annotate its first argument as list[Item[Order]]"),
            ("nothing", ["batch_size = 9"],
                ":3: topics.job.batch_size: bulk_jobs:nothing takes nothing, but gets a list"),
            ("items", [],
                ":2: topics.job.handler: bulk_jobs:items takes a list of Items, which only batches have: "
                "add batch_size = 100, say"),
            ("payloads", ["batch_size = 9", 'ack_policy = "manual"'],
                ':4: topics.job.ack_policy: "manual" needs a handler that can acknowledge: '
                'with batch_size, let bulk_jobs:payloads take a list[Item]'),
        ],
    )  # fmt: skip
    def test_contradicting_settings_are_refused_with_line_key_and_fix(
        self, load: Callable[..., dict[str, Handler]], function: str, lines: list[str], says: str
    ) -> None:
        with pytest.raises(ConfigError) as refused:
            load(function, *lines)

        assert f"pgrouse.toml{says}" in str(refused.value)
        assert refused.value.exit_code == 78

    def test_a_batch_larger_than_a_claim_is_refused(self, load: Callable[..., dict[str, Handler]]) -> None:
        with pytest.raises(ConfigError) as refused:
            load("payloads", "batch_size = 500", worker="claim_batch_size = 200")

        assert "pgrouse.toml:5: topics.job.batch_size: 500 is more than worker.claim_batch_size, 200" in str(
            refused.value
        )
        assert "set that to at least 500, or lower batch" in str(refused.value)
