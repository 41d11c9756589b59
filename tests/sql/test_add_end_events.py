"""messages.add_end_events: recorded ends are propagated at the commit, and are rolled back with their savepoint."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_it_adds_to_the_events_that_the_transaction_has_recorded(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.call("add_end_events", [1, 2], "success")
        queue.call("add_end_events", [3], "failed")
        recorded = queue.value("SELECT current_setting('messages.end_events')")
        rows = [tuple(row) for row in queue.rows("SELECT id, result FROM messages.end_event ORDER BY id")]

    assert (recorded, rows) == ("1,2,3", [(1, "success"), (2, "success"), (3, "failed")])
    assert queue.value("SELECT count(*) FROM messages.end_event") == 0


def test_a_later_event_of_a_message_replaces_the_earlier_one(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.call("add_end_events", [1], "failed")
        queue.call("add_end_events", [1], "redriven")
        assert queue.value("SELECT result FROM messages.end_event") == "redriven"


def test_an_event_is_rolled_back_with_its_savepoint(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.conn.execute("SAVEPOINT s")
        queue.call("add_end_events", [1], "failed")
        queue.conn.execute("ROLLBACK TO s")
        assert queue.value("SELECT coalesce(current_setting('messages.end_events', true), '')") == ""
        assert queue.value("SELECT count(*) FROM messages.end_event") == 0
