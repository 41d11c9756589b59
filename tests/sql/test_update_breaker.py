"""messages.update_breaker: a breaker during operation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.queue import Queue

BREAKER = {"min_attempts": 4, "pause": "30s", "probes": 2}


@pytest.fixture
def broken(queue: Queue) -> Queue:
    """Return a queue whose topic t has a breaker that has just opened."""
    queue.policy(breaker=BREAKER)
    queue.publish_many(20)
    claimed = queue.claim(limit=4)
    queue.settle("fail", claimed, ["boom"] * 4)
    return queue


def breaker(queue: Queue) -> Any:
    return queue.row("SELECT * FROM messages.breaker WHERE topic = 't'")


def test_failures_open_it_and_nothing_more_is_claimed(broken: Queue) -> None:
    assert breaker(broken).position == "open"
    assert broken.claim() == []


def test_after_the_pause_a_few_messages_are_claimed_and_one_success_closes_it(broken: Queue) -> None:
    broken.later("31 s")

    probes = broken.claim()
    assert len(probes) == 2
    assert broken.claim() == []

    broken.settle("complete", probes)
    assert breaker(broken).position == "closed"
    assert len(broken.claim()) == 14


def test_a_failed_probe_opens_it_again(broken: Queue) -> None:
    broken.later("31 s")

    broken.settle("fail", broken.claim(), ["boom"] * 2)

    assert breaker(broken).position == "open"
    assert broken.claim() == []


def test_settles_that_create_breakers_in_opposite_order_do_not_wait_for_each_other(queue: Queue, other: Queue) -> None:
    for topic in "ab":
        queue.policy(topic, breaker=BREAKER)
        queue.publish_many(2, topic)
    first, second, third, fourth = sorted(queue.claim("a", "b"), key=lambda row: row.topic)

    with queue.conn.transaction(), other.conn.transaction():
        other.conn.execute("SET LOCAL lock_timeout = '10s'")
        queue.settle("complete", [first])
        other.settle("complete", [third])
        other.settle("complete", [second])
        queue.settle("complete", [fourth])
    queue.call("update_breakers")

    assert queue.rows("SELECT topic, succeeded FROM messages.breaker ORDER BY 1") == [("a", 2), ("b", 2)]
