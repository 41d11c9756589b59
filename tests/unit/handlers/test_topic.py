"""A topic that is declared in code: it is called as its function, publishes, and is processed in tests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, get_args

import psycopg
import pytest
from pydantic import BaseModel

from pgrouse import AsyncBatchContext, AsyncContext, Context, Item, Reject, topic
from pgrouse.config.config import ChannelPolicy, TopicSettings
from pgrouse.config.policy import policy_options
from pgrouse.config.policy.policy_settings import Backoff, Breaker, TopicPolicy
from pgrouse.config.schedules import ScheduleSettings
from pgrouse.errors import ConfigError, InvalidMessage
from pgrouse.handlers.declaration import topic_options
from pgrouse.testing import drain, perform
from tests.sql.queue import Queue


class Order(BaseModel):
    id: int


@topic("orders.created", max_attempts=3, backoff="none")
async def created(order: Order, ctx: AsyncContext) -> int:
    """Work an order."""
    if order.id < 0:
        raise OSError("down")
    return order.id + ctx.attempt


@topic("image.store")
def store(image: bytes) -> int:
    return len(image)


@topic("report.build", batch_size=10)
def build(reports: list[Item[Order]]) -> None:
    assert len(reports) == 3


def test_it_is_called_as_its_function_and_looks_like_it() -> None:
    assert store(b"abc") == 3
    assert (created.__name__, created.__doc__, created.name) == ("created", "Work an order.", "orders.created")
    assert created.__module__ == __name__
    assert repr(created).startswith("<topic orders.created, ")


def test_it_publishes_to_its_topic(db: psycopg.Connection[Any]) -> None:
    queue = Queue(db)

    one = created.publish(db, Order(id=1), key="k")
    two = store.publish(db, b"abc")
    many = created.publish_many(db, [Order(id=2), Order(id=3)], priority=1)

    assert queue.value("SELECT payload FROM messages.message WHERE id = %s AND key = 'k'", [one]) == {"id": 1}
    assert queue.value("SELECT body FROM messages.message WHERE id = %s", [two]) == b"abc"
    assert many == 2
    assert queue.value("SELECT count(*) FROM messages.message WHERE topic = 'orders.created' AND priority = 1") == 2


def test_a_generator_of_payloads_is_streamed_and_a_wrong_option_refused(db: psycopg.Connection[Any]) -> None:
    assert created.publish_many(db, (Order(id=n) for n in range(5))) == 5
    with pytest.raises(InvalidMessage):
        created.publish_many(db, [Order(id=1)], priority=77)


def test_perform_and_drain_take_it_with_its_options(db: psycopg.Connection[Any]) -> None:
    queue = Queue(db)
    created.publish(db, Order(id=1))
    build.publish_many(db, [Order(id=n) for n in range(3)])

    attempts = drain(db, [created, build])

    assert perform(created, {"id": 7}).output == 8
    assert perform(created, {"id": "x"}).outcome == "reject"
    assert [each.outcome for each in attempts] == ["complete"] * 4
    assert queue.value("SELECT count(*) FROM messages.message_archive WHERE topic = 'report.build'") == 3


def test_a_wrong_option_is_an_error_in_tests_too() -> None:
    @topic("a", max_attempts=-1)
    def work(payload: Any) -> None:
        raise Reject("never")

    with pytest.raises(ConfigError, match=r"test_topic.py:\d+: topics.test.max_attempts: must be at least 0"):
        perform(work, 1)


def test_a_decorator_without_a_name_is_an_error_with_its_line() -> None:
    decorator: Any = topic

    with pytest.raises(TypeError, match=r"@topic above handle has no name of a topic: write @topic\("):

        @decorator
        def handle(payload: Any) -> None: ...

    with pytest.raises(TypeError, match=r"topic\(7\) has no name of a topic"):
        decorator(7)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"timeout": "30 parsecs"}, r"timeout of topic t: expected a duration like .+, found '30 parsecs'"),
        ({"ttl": -1}, "ttl of topic t: expected a duration"),
        ({"backoff": {"kind": "linear", "step": "soon"}}, "step of backoff of topic t: expected a duration"),
        ({"breaker": {"window": "1 min"}}, "window of breaker of topic t: expected a duration"),
        ({"channels": {"eu": {"min_interval": "1 parsec"}}}, "min_interval of channel eu of topic t: expected a"),
    ],
)
def test_what_is_no_duration_is_an_error_where_it_is_written(options: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        topic("t", **options)


def test_what_is_a_duration_is_taken_as_in_the_file() -> None:
    schema = {"properties": {"timeout": "any"}}

    topic("t", timeout="inherit", retention="none", lock_duration=30, ttl="1h30m", payload_schema=schema)
    topic("t", backoff="exponential", breaker="none", channels={"eu": {"min_interval": timedelta(seconds=1)}})
    with pytest.raises(ValueError, match=r"jitter of the schedule of topic orders.created: expected a duration"):
        created.every("@daily", jitter="a while")


def test_a_context_of_the_wrong_kind_is_an_error_where_it_is_written() -> None:
    decorate: Any = topic("t")

    with pytest.raises(TypeError, match=r"handle is async: annotate ctx as AsyncContext, not as Context"):

        @decorate
        async def handle(payload: Any, ctx: Context) -> None: ...

    with pytest.raises(TypeError, match=r"handle_blocking is not async: annotate ctx as Context, not as AsyncContext"):

        @decorate
        def handle_blocking(payload: Any, ctx: AsyncContext[Any] | None) -> None: ...

    with pytest.raises(TypeError, match=r"handle_batch is not async and takes batches: annotate ctx as BatchContext"):

        @topic("t", batch_size=2)
        def handle_batch(payloads: list[Any], ctx: AsyncBatchContext) -> None: ...


def test_a_context_that_cannot_be_evaluated_yet_is_left_to_the_daemon() -> None:
    @topic("t")
    async def handle(payload: Any, ctx: NotImportedAtRunTime) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    @topic("t")
    def handle_either(payload: Any, ctx: Context | AsyncContext) -> None: ...

    @topic("t")
    def handle_any(payload: Any, ctx: Any = None, *, more: int = 1) -> None: ...


def test_a_function_handles_one_topic() -> None:
    with pytest.raises(TypeError, match=r"orders.created and b are declared on one function"):
        topic("b")(created)


@pytest.mark.parametrize(
    ("options", "model", "without"),
    [
        (topic_options.TopicOptions, TopicSettings, {"handler", "batch_size"}),
        (policy_options.PolicyOptions, TopicPolicy, set()),
        (policy_options.BackoffOptions, Backoff, set()),
        (policy_options.BreakerOptions, Breaker, set()),
        (topic_options.ChannelOptions, ChannelPolicy, set()),
        (topic_options.ScheduleOptions, ScheduleSettings, {"topic", "cron", "payload"}),
    ],
)
def test_code_takes_by_name_what_the_file_takes(options: Any, model: Any, without: set[str]) -> None:
    assert set(options.__annotations__) - {"name"} == set(model.model_fields) - without


def test_the_kinds_of_a_backoff_are_those_of_the_file() -> None:
    kinds = get_args(get_args(Backoff.model_fields["kind"].annotation)[0])
    assert get_args(policy_options.BackoffKind) == kinds


@topic("parcels.*")
def parcel(payload: dict[str, Any]) -> int:
    return len(payload)


def test_a_pattern_is_published_to_by_naming_one_of_its_topics(db: psycopg.Connection[Any]) -> None:
    handle = parcel.publish(db, {"id": 7}, topic="parcels.sent")

    row = Queue(db).message(handle)
    assert (row.topic, row.payload) == ("parcels.sent", {"id": 7})
    assert parcel.message({}, topic="parcels.lost").topic == "parcels.lost"
    with pytest.raises(InvalidMessage, match=r"topic is missing: parcels\.\* is a pattern"):
        parcel.publish(db, {"id": 7})
    with pytest.raises(
        InvalidMessage, match=r"topic is parcels\.eu\.sent, which the handler of parcels\.\* does not get"
    ):
        parcel.publish(db, {"id": 7}, topic="parcels.eu.sent")
    with pytest.raises(InvalidMessage, match="topic is missing"):
        parcel.every("@daily")
