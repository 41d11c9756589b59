"""messages.count_breaker_attempts: which ended attempts count for a breaker."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.queue import Queue

BREAKER = {"min_attempts": 4, "pause": "30s", "probes": 2}


def breaker(queue: Queue) -> Any:
    return queue.row("SELECT * FROM messages.breaker WHERE topic = 't'")


def test_retried_attempts_count_as_failed(queue: Queue) -> None:
    queue.policy(breaker=BREAKER, max_attempts=3)
    queue.publish_many(4)

    queue.settle("retry", queue.claim(), ["boom"] * 4)

    assert breaker(queue).position == "open"


def test_expired_locks_count_as_failed(queue: Queue) -> None:
    queue.policy(breaker=BREAKER)
    queue.publish_many(4)
    queue.claim(lock_duration="0 s")

    queue.call("expire_locks")

    assert breaker(queue).position == "open"


@pytest.mark.parametrize("settle", ["complete", "reject"])
def test_successful_and_rejected_messages_do_not_open_it(queue: Queue, settle: str) -> None:
    queue.policy(breaker=BREAKER)
    queue.publish_many(10)
    claimed = queue.claim()

    queue.settle(settle, claimed, *([["bad"] * 10] if settle == "reject" else []))

    assert breaker(queue) is None or breaker(queue).position == "closed"


def test_the_breaker_of_another_topic_does_not_count_it(queue: Queue) -> None:
    queue.policy("u", breaker=BREAKER)
    queue.publish_many(4)

    queue.settle("fail", queue.claim(), ["boom"] * 4)

    assert queue.rows("SELECT * FROM messages.breaker UNION ALL SELECT b.* FROM messages.breaker AS b") == []
    assert queue.rows("SELECT * FROM messages.breaker_count") == []


def test_a_default_breaker_is_a_separate_one_for_each_topic(queue: Queue) -> None:
    queue.policy("*", breaker=BREAKER)
    for topic in ("a", "b"):
        queue.publish_many(4, topic)

    queue.settle("fail", queue.claim("a"), ["boom"] * 4)

    assert queue.claim("a", "b", limit=10)[0].topic == "b"


@pytest.mark.parametrize("end", ["skip", "fan out", "over"])
def test_messages_that_end_without_being_run_are_no_attempts(queue: Queue, end: str) -> None:
    queue.policy(breaker=BREAKER)
    if end == "fan out":
        queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('t', 'u')")
    published = queue.publish_many(10)
    match end:
        case "skip":
            queue.call("skip", published)
        case "over":
            queue.conn.execute("UPDATE messages.message SET attempts = 1, max_attempts = 1")
            queue.claim()

    assert queue.value("SELECT count(*) FROM messages.message_archive") == 10
    assert queue.rows("SELECT FROM messages.breaker") == []
    assert queue.rows("SELECT FROM messages.breaker_count") == []
