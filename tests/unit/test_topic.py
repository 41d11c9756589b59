"""A topic that is declared in code: it is called as its function, publishes, and is processed in tests."""

from __future__ import annotations

from typing import Any, get_args

import psycopg
import pytest
from pydantic import BaseModel

from pgrouse import AsyncContext, Item, Reject, topic
from pgrouse.config import policy_options
from pgrouse.config.config import ChannelPolicy, TopicSettings
from pgrouse.config.policy_settings import Backoff, Breaker, TopicPolicy
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
