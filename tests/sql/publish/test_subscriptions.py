"""Subscriptions, and the locks of publishers that reach the same topics."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from tests.sql.queue import Background, Queue

# subscription_changed: The trigger of messages.subscription: refuses cycles and dead letter topics, and raises the flag
# for publishing.


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
    queue: Queue, other: Queue, background: Background
) -> None:
    with other.conn.transaction():
        subscribe(other, ("a", "b"))
        closing = background.start_blocked(queue, subscribe, queue, ("b", "a"))

    with pytest.raises(psycopg.errors.InvalidParameterValue, match="circle"):
        closing.result(timeout=60)


def test_a_subscription_with_an_old_snapshot_fails_and_closes_no_cycle(queue: Queue, other: Queue) -> None:
    with other.conn.transaction(force_rollback=True):
        other.conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.rows("SELECT FROM messages.subscription")
        subscribe(queue, ("a", "b"))
        with pytest.raises(errors.SerializationFailure):
            subscribe(other, ("b", "a"))


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


# messages.lock_publish_limits: publishers that reach the same topics in different ways wait for each other without a
# deadlock.

LOCKED = (
    "SELECT topic FROM messages.{} WHERE NOT topic IN (SELECT topic "
    "FROM messages.{} FOR NO KEY UPDATE SKIP LOCKED) ORDER BY 1"
)


@pytest.fixture
def copied(queue: Queue) -> None:
    """Messages of z are copied to m, and from there to a."""
    for topic in ("a", "m", "z"):
        queue.policy(topic, max_depth=100, publish_rate=1000)
        queue.publish(topic)
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('z', 'm'), ('m', 'a')")


def locked(queue: Queue, table: str) -> list[str]:
    return [row.topic for row in queue.rows(LOCKED.format(table, table))]


@pytest.mark.usefixtures("copied")
def test_the_counters_and_rates_of_a_topic_and_of_all_that_it_reaches_are_locked(queue: Queue, other: Queue) -> None:
    queue.policy("beside", max_depth=100, publish_rate=1000)
    queue.publish("beside")
    with queue.conn.transaction():
        queue.call("lock_publish_limits", ["m"])

        assert (locked(other, "depth"), locked(other, "rate")) == (["a", "m"], ["a", "m"])


@pytest.mark.usefixtures("copied")
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


@pytest.mark.usefixtures("copied")
def test_the_wait_for_them_is_bounded(queue: Queue, other: Queue) -> None:
    other.conn.execute("SET lock_timeout = '10ms'")
    with queue.conn.transaction():
        queue.publish("a")

        with pytest.raises(errors.LockNotAvailable):
            other.call("lock_publish_limits", ["z"])
    with other.conn.transaction():
        other.call("lock_publish_limits", ["z"])
        assert other.value("SHOW lock_timeout") == "10ms"
