"""The counters of max_depth: created, corrected and forgotten."""

from __future__ import annotations

import pytest

from tests.sql.queue import Background, Queue

# messages.apply_depth_changes: the session that holds the counter of a topic adds up its pending changes.


def test_a_counter_that_started_too_low_stops_at_zero(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.depth VALUES ('a', 1)")
    queue.conn.execute("INSERT INTO messages.depth_change VALUES ('a', -2)")

    assert queue.call("apply_depth_changes", "a") == 0


def test_it_reads_only_the_changes_of_its_topic(own_queue: Queue) -> None:
    own_queue.conn.execute("INSERT INTO messages.depth VALUES ('a', 10)")
    own_queue.conn.execute("INSERT INTO messages.depth_change SELECT 't' || n, -1 FROM generate_series(1, 20000) AS n")

    assert own_queue.buffers("SELECT messages.apply_depth_changes('a')") < 20


# messages.create_depths: depth changes without a counter get one, or are deleted.

CREATE_DEPTHS_CHANGES = "SELECT count(*) FROM messages.depth_change"


def test_a_limited_topic_without_publishers_gets_its_counter(queue: Queue) -> None:
    queue.policy("*", max_depth=100)
    queue.policy("t", dead_letter=True)
    queue.publish_many(3)
    queue.settle("fail", queue.claim(), ["boom"] * 3)
    assert queue.depth("t.dlq") is None

    queue.call("create_depths")

    assert queue.depth("t.dlq") == 3
    assert queue.value(CREATE_DEPTHS_CHANGES + " WHERE topic = 't.dlq'") == 0


def test_changes_of_a_topic_without_a_limit_are_deleted(queue: Queue) -> None:
    """A limit was lifted, and its counter deleted, while they were not committed."""
    queue.conn.execute("INSERT INTO messages.depth_change VALUES ('t', -1), ('t', 1)")

    queue.call("create_depths")

    assert queue.value(CREATE_DEPTHS_CHANGES) == 0
    assert queue.depth() is None


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

    assert (queue.depth("t"), queue.value(CREATE_DEPTHS_CHANGES)) == (1, 0)


# messages.count_live: all live messages of a topic, whatever their state, and of no other.


@pytest.mark.newest
def test_it_reads_only_rows_of_the_topic(own_queue: Queue) -> None:
    own_queue.publish_many(5000, "other")
    own_queue.publish_many(3)

    assert own_queue.buffers("SELECT messages.count_live('t')") < 60


# messages.recount_depth: corrects wrong counters while publishers and workers continue.


def test_rows_that_were_deleted_by_hand_make_room_again(queue: Queue) -> None:
    queue.policy("t", max_depth=10)
    queue.publish_many(8)
    queue.conn.execute("DELETE FROM messages.message WHERE payload::int > 3")

    assert queue.call("recount_depth", 1.0) == 1
    assert queue.depth() == 3


def test_messages_of_a_transaction_that_had_not_seen_the_limit_are_counted_in_the_end(
    queue: Queue, other: Queue
) -> None:
    with other.conn.transaction():
        other.publish_many(5)
        queue.policy("t", max_depth=10)
        queue.publish()

    assert queue.depth() == 1
    queue.call("recount_depth", 1.0)
    assert queue.depth() == 6


def test_an_unused_counter_is_deleted_and_the_flag_is_lowered(own_queue: Queue) -> None:
    own_queue.policy("t", max_depth=10)
    own_queue.publish()
    own_queue.policy("t", max_depth=None)

    forgotten = own_queue.call("recount_depth", 1.0)
    own_queue.call("prune")

    assert forgotten == 1
    assert own_queue.rows("SELECT FROM messages.depth") == []
    assert own_queue.call("has_policies") is False


def test_ends_during_the_deletion_of_their_counter_leave_nothing(queue: Queue, other: Queue) -> None:
    queue.policy("t", max_depth=10)
    queue.publish()
    claimed = queue.claim()
    with other.conn.transaction():
        other.settle("complete", claimed)
        queue.policy("t", max_depth=None)
        queue.call("recount_depth", 1.0)

    queue.call("recount_depth", 0.0)

    assert queue.rows("SELECT FROM messages.depth_change") == []
    assert queue.depth() is None


def test_a_locked_counter_is_left_for_the_next_call(queue: Queue, other: Queue) -> None:
    queue.policy("t", max_depth=10)
    queue.publish()
    queue.conn.execute("UPDATE messages.depth SET rows = 5")

    with other.conn.transaction():
        other.publish()
        queue.conn.execute("SET lock_timeout = '1 s'")
        assert queue.call("recount_depth", 1.0) == 0
    assert queue.call("recount_depth", 1.0) == 1

    assert queue.depth() == 2


def test_topics_with_more_messages_than_the_limit_are_not_counted(queue: Queue) -> None:
    queue.policy("t", max_depth=100)
    queue.publish_many(8)
    queue.conn.execute("UPDATE messages.depth SET rows = 50")

    assert queue.call("recount_depth", 1.0, 49) == 0


def test_among_publishers_and_workers_it_finds_no_error(
    queue: Queue, other: Queue, third: Queue, background: Background
) -> None:
    queue.policy("t", max_depth=1_000_000)
    queue.publish()

    def publish(by: Queue) -> None:
        for _ in range(200):
            by.publish_many(3)

    def work(by: Queue) -> None:
        for _ in range(100):
            by.settle("complete", by.claim(limit=7))

    going_on = [background.start(publish, queue), background.start(work, other)]
    corrected = sum(third.call("recount_depth", 1.0) for _ in range(100))
    for each in going_on:
        each.result(60)

    assert corrected == 0
    assert queue.depth() == len(queue.ids())


def test_the_tick_calls_it(queue: Queue) -> None:
    assert "recount_depth" in [row.task for row in queue.rows("SELECT * FROM messages.tick()")]
