"""Subscriptions to patterns: a topic gets copies of what is published to every topic that a pattern matches."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.sql.queue import Queue


def subscribe(queue: Queue, topic: str, subscriber: str) -> None:
    queue.conn.execute("INSERT INTO messages.subscription VALUES (%s, %s)", [topic, subscriber])


def topics(queue: Queue) -> list[str]:
    return [row.topic for row in queue.rows("SELECT topic FROM messages.message ORDER BY topic")]


def test_a_subscriber_of_a_pattern_gets_what_is_published_to_its_topics(queue: Queue) -> None:
    subscribe(queue, "orders.*", "audit")
    subscribe(queue, "orders.**", "search")

    queue.publish("orders")
    queue.publish("orders.a")
    queue.publish("orders.a.b")

    assert topics(queue) == ["audit", "orders", "search", "search"]


def test_a_subscriber_by_name_and_by_pattern_gets_one_copy(queue: Queue) -> None:
    subscribe(queue, "orders.a", "audit")
    subscribe(queue, "orders.*", "audit")
    subscribe(queue, "**", "audit")

    source = queue.publish("orders.a")

    assert topics(queue) == ["audit"]
    assert list(queue.archived(source).output["fanned_out"]) == ["audit"]


def test_a_subscriber_that_the_pattern_matches_keeps_its_own_messages(queue: Queue) -> None:
    subscribe(queue, "orders.*", "orders.all")

    queue.publish("orders.a")
    queue.publish("orders.all")

    assert topics(queue) == ["orders.all", "orders.all"]


def test_patterns_that_would_copy_without_end_are_refused(queue: Queue) -> None:
    subscribe(queue, "orders.*", "orders.one")

    with pytest.raises(errors.InvalidParameterValue, match=r"circle of the topics orders\.one, orders\.two"):
        subscribe(queue, "orders.**", "orders.two")
    subscribe(queue, "orders.**", "audit")


def test_a_subscriber_is_a_name(queue: Queue) -> None:
    with pytest.raises(errors.CheckViolation):
        subscribe(queue, "orders", "audit.*")
    for topic in ("*", "or*", "a.*.b"):
        with pytest.raises(errors.CheckViolation):
            subscribe(queue, topic, "audit")


def test_what_comes_after_others_cannot_go_to_a_topic_whose_pattern_has_subscribers(queue: Queue) -> None:
    first = queue.publish("t")
    subscribe(queue, "orders.*", "audit")

    with pytest.raises(errors.InvalidParameterValue, match=r"orders\.a has subscribers"):
        queue.send(1, "orders.a", after=[first])


def test_dead_letters_are_not_copied(queue: Queue) -> None:
    subscribe(queue, "**", "audit")
    queue.policy("audit", dead_letter=True)
    queue.publish("orders.a")

    queue.settle("reject", queue.claim("audit"), ["no"])

    assert topics(queue) == ["audit.dlq"]
