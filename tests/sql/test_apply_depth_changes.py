"""messages.apply_depth_changes: the session that holds the counter of a topic adds up its pending changes."""

from __future__ import annotations

from tests.sql.queue import Queue

CHANGES = "SELECT topic, change FROM messages.depth_change ORDER BY topic, change"


def test_the_changes_of_the_topic_are_added_up_and_deleted(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.depth VALUES ('a', 10), ('b', 10)")
    queue.conn.execute("INSERT INTO messages.depth_change VALUES ('a', -2), ('a', 5), ('b', -1)")

    assert queue.call("apply_depth_changes", "a") == 13
    assert queue.rows("SELECT * FROM messages.depth ORDER BY topic") == [("a", 13), ("b", 10)]
    assert queue.rows(CHANGES) == [("b", -1)]


def test_without_changes_it_returns_null_and_writes_nothing(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.depth VALUES ('a', 10)")
    before = queue.value("SELECT ctid FROM messages.depth")

    assert queue.call("apply_depth_changes", "a") is None
    assert queue.value("SELECT ctid FROM messages.depth") == before


def test_a_counter_that_started_too_low_stops_at_zero(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.depth VALUES ('a', 1)")
    queue.conn.execute("INSERT INTO messages.depth_change VALUES ('a', -2)")

    assert queue.call("apply_depth_changes", "a") == 0


def test_after_a_rollback_the_changes_are_pending_again(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.depth VALUES ('a', 10)")
    queue.conn.execute("INSERT INTO messages.depth_change VALUES ('a', -2)")
    with queue.conn.transaction(force_rollback=True):
        queue.call("apply_depth_changes", "a")

    assert queue.rows("SELECT rows FROM messages.depth") == [(10,)]
    assert queue.rows(CHANGES) == [("a", -2)]


def test_uncommitted_changes_are_left_and_not_waited_for(queue: Queue, other: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.depth VALUES ('a', 10)")
    queue.conn.execute("SET lock_timeout = '1s'")
    with other.conn.transaction():
        other.conn.execute("INSERT INTO messages.depth_change VALUES ('a', -2)")

        assert queue.call("apply_depth_changes", "a") is None
    assert queue.call("apply_depth_changes", "a") == 8


def test_it_reads_only_the_changes_of_its_topic(own_queue: Queue) -> None:
    own_queue.conn.execute("INSERT INTO messages.depth VALUES ('a', 10)")
    own_queue.conn.execute("INSERT INTO messages.depth_change SELECT 't' || n, -1 FROM generate_series(1, 20000) AS n")

    assert own_queue.buffers("SELECT messages.apply_depth_changes('a')") < 20
