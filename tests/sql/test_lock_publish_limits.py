"""messages.lock_publish_limits: publishers that reach the same topics in different ways wait for each other without a deadlock."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.sql.queue import Background, Queue

LOCKED = "SELECT topic FROM messages.{} WHERE NOT topic IN (SELECT topic FROM messages.{} FOR NO KEY UPDATE SKIP LOCKED) ORDER BY 1"


@pytest.fixture(autouse=True)
def copied(queue: Queue) -> None:
    """Messages of z are copied to m, and from there to a."""
    for topic in ("a", "m", "z"):
        queue.policy(topic, max_depth=100, publish_rate=1000)
        queue.publish(topic)
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('z', 'm'), ('m', 'a')")


def locked(queue: Queue, table: str) -> list[str]:
    return [row.topic for row in queue.rows(LOCKED.format(table, table))]


def test_the_counters_and_rates_of_a_topic_and_of_all_that_it_reaches_are_locked(queue: Queue, other: Queue) -> None:
    queue.policy("beside", max_depth=100, publish_rate=1000)
    queue.publish("beside")
    with queue.conn.transaction():
        queue.call("lock_publish_limits", ["m"])

        assert (locked(other, "depth"), locked(other, "rate")) == (["a", "m"], ["a", "m"])


def test_a_publish_locks_them_before_it_counts(
    queue: Queue, other: Queue, third: Queue, background: Background
) -> None:
    """It waits for the first one without holding any; if it held the last one, this would be a deadlock."""
    with other.conn.transaction():
        other.publish("a")
        published = background.start(queue.publish, "z")
        while not background.is_blocked(queue):
            assert not published.done()
        assert "z" not in locked(third, "depth")
        other.publish("z")

    published.result(timeout=60)


def test_the_wait_for_them_is_bounded(queue: Queue, other: Queue) -> None:
    other.conn.execute("SET lock_timeout = '10ms'")
    with queue.conn.transaction():
        queue.publish("a")

        with pytest.raises(errors.LockNotAvailable):
            other.call("lock_publish_limits", ["z"])
    with other.conn.transaction():
        other.call("lock_publish_limits", ["z"])
        assert other.value("SHOW lock_timeout") == "10ms"
