"""messages.update_breakers: what the tick does for breakers."""

from __future__ import annotations

from typing import Any

from tests.sql.queue import Queue

BREAKER = {"min_attempts": 4, "pause": "30s", "probes": 2}


def breaker(queue: Queue) -> Any:
    return queue.row("SELECT * FROM messages.breaker WHERE topic = 't'")


def test_a_settle_that_cannot_lock_the_breaker_waits_for_no_session_and_the_next_one_counts(
    queue: Queue, other: Queue
) -> None:
    queue.policy(breaker=BREAKER)
    queue.publish_many(9)
    queue.settle("complete", queue.claim(limit=1))
    claimed = queue.claim(limit=4)

    with other.conn.transaction():
        other.rows("SELECT * FROM messages.breaker FOR UPDATE")
        queue.settle("fail", claimed, ["boom"] * 4)
        assert breaker(queue).position == "closed"
    queue.call("update_breakers")

    assert breaker(queue).position == "open"


def test_a_breaker_without_a_policy_is_deleted(queue: Queue) -> None:
    queue.policy(breaker=BREAKER)
    queue.publish_many(20)
    queue.settle("fail", queue.claim(limit=4), ["boom"] * 4)
    queue.policy(breaker=None)

    queue.call("update_breakers")

    assert breaker(queue) is None
    assert len(queue.claim()) == 16


def test_a_breaker_without_a_policy_that_a_settle_updates_is_left_to_the_next_tick(queue: Queue, other: Queue) -> None:
    queue.policy(breaker=BREAKER)
    queue.publish_many(2)
    claimed = queue.claim()
    queue.settle("complete", claimed[:1])

    with queue.conn.transaction():
        queue.settle("complete", claimed[1:])
        other.conn.execute("SET lock_timeout = '10s'")
        other.policy(breaker=None)
        other.call("update_breakers")
        assert breaker(other) is not None
    other.call("update_breakers")

    assert breaker(other) is None
