"""The trigger of messages.subscription: refuses cycles and dead letter topics, and raises the flag for publishing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.sql.queue import Background, Queue


def subscribe(queue: Queue, *pairs: tuple[str, str]) -> None:
    for pair in pairs:
        queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES (%s, %s)", pair)


@pytest.mark.parametrize("last", [("b", "a"), ("c", "a"), ("c", "b")])
def test_a_cycle_is_refused_and_named(queue: Queue, last: tuple[str, str]) -> None:
    subscribe(queue, ("a", "b"), ("b", "c"), ("a", "c"))

    with pytest.raises(
        psycopg.errors.InvalidParameterValue, match="form a circle of the topics .*" + ", ".join(sorted(last))[0]
    ):
        subscribe(queue, last)

    assert queue.value("SELECT count(*) FROM messages.subscription") == 3


def test_a_fork_that_joins_again_is_no_cycle(queue: Queue) -> None:
    subscribe(queue, ("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"))

    assert queue.publish("a") > 0
    assert [row.topic for row in queue.rows("SELECT topic FROM messages.message")] == ["d", "d"]


def test_a_topic_may_subscribe_to_itself(queue: Queue) -> None:
    subscribe(queue, ("a", "a"), ("a", "b"))

    assert queue.publish("a") in queue.ids()


def test_an_update_that_closes_a_cycle_is_refused_too(queue: Queue) -> None:
    subscribe(queue, ("a", "b"), ("b", "c"))

    with pytest.raises(psycopg.errors.InvalidParameterValue, match="circle"):
        queue.conn.execute("UPDATE messages.subscription SET subscriber = 'a' WHERE topic = 'b'")


def test_two_concurrent_subscriptions_cannot_close_a_cycle_together(
    queue: Queue, other: Queue, background: Background, eventually: Callable[..., Any]
) -> None:
    with other.conn.transaction():
        subscribe(other, ("a", "b"))
        closing = background.start(subscribe, queue, ("b", "a"))
        eventually(lambda: background.is_blocked(queue))

    with pytest.raises(psycopg.errors.InvalidParameterValue, match="circle"):
        closing.result(timeout=60)


@pytest.mark.parametrize("pair", [("a", "b.dlq"), ("a.dlq", "b")])
def test_dead_letter_topics_cannot_subscribe_or_be_subscribed_to(queue: Queue, pair: tuple[str, str]) -> None:
    with pytest.raises(psycopg.Error, match="reserved for dead letters") as caught:
        subscribe(queue, pair)

    assert caught.value.sqlstate == "PGR05"


def test_a_publish_checks_subscriptions_from_the_first_to_the_last(own_queue: Queue) -> None:
    subscribe(own_queue, ("a", "b"))
    marked = own_queue.call("has_policies")

    own_queue.conn.execute("DELETE FROM messages.subscription")
    own_queue.call("prune")

    assert (marked, own_queue.call("has_policies")) == (True, False)


def test_an_operator_may_subscribe(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.conn.execute("SET LOCAL ROLE messages_operator")
        subscribe(queue, ("a", "b"))

    assert queue.value("SELECT count(*) FROM messages.subscription") == 1
