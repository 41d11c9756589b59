"""messages.create_depths: depth changes without a counter get one, or are deleted."""

from __future__ import annotations

from tests.sql.queue import Queue

CHANGES = "SELECT count(*) FROM messages.depth_change"


def test_a_limited_topic_without_publishers_gets_its_counter(queue: Queue) -> None:
    queue.policy("*", max_depth=100)
    queue.policy("t", dead_letter=True)
    queue.publish_many(3)
    queue.settle("fail", queue.claim(), ["boom"] * 3)
    assert queue.depth("t.dlq") is None

    queue.call("create_depths")

    assert queue.depth("t.dlq") == 3
    assert queue.value(CHANGES + " WHERE topic = 't.dlq'") == 0


def test_changes_of_a_topic_without_a_limit_are_deleted(queue: Queue) -> None:
    """A limit was lifted, and its counter deleted, while they were not committed."""
    queue.conn.execute("INSERT INTO messages.depth_change VALUES ('t', -1), ('t', 1)")

    queue.call("create_depths")

    assert queue.value(CHANGES) == 0
    assert queue.depth() is None


def test_changes_with_a_counter_are_left_to_publishers(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.depth VALUES ('t', 5)")
    queue.conn.execute("INSERT INTO messages.depth_change VALUES ('t', -1)")

    queue.call("create_depths")

    assert (queue.value(CHANGES), queue.depth()) == (1, 4)


def test_a_counter_that_is_being_created_is_left_for_the_next_call(queue: Queue, other: Queue) -> None:
    queue.policy("t", max_depth=100)
    queue.policy("u", max_depth=100)
    queue.conn.execute("INSERT INTO messages.depth_change VALUES ('t', 1), ('u', 1)")
    queue.conn.execute("SET statement_timeout = '10s'")
    with other.conn.transaction():
        other.publish("t")

        queue.call("create_depths")

        assert (queue.depth("t"), queue.depth("u")) == (None, 0)
        assert queue.value("SHOW lock_timeout") == "0"
    queue.call("create_depths")

    assert (queue.depth("t"), queue.value(CHANGES)) == (1, 0)
