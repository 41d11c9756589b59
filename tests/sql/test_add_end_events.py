"""messages.add_end_events: what is noted is passed on at the commit, and is undone with its savepoint."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_it_adds_to_what_the_transaction_has_noted_before(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.call("add_end_events", [1, 2], "success")
        queue.call("add_end_events", [3], "failed")
        noted = queue.value("SELECT current_setting('messages.end_events')")
        rows = [tuple(row) for row in queue.rows("SELECT id, result FROM messages.end_event ORDER BY id")]

    assert (noted, rows) == ("1,2,3", [(1, "success"), (2, "success"), (3, "failed")])
    assert queue.value("SELECT count(*) FROM messages.end_event") == 0


def test_a_later_word_on_a_message_takes_the_place_of_the_earlier(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.call("add_end_events", [1], "failed")
        queue.call("add_end_events", [1], "redriven")
        assert queue.value("SELECT result FROM messages.end_event") == "redriven"


def test_it_is_undone_with_its_savepoint(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.conn.execute("SAVEPOINT s")
        queue.call("add_end_events", [1], "failed")
        queue.conn.execute("ROLLBACK TO s")
        assert queue.value("SELECT coalesce(current_setting('messages.end_events', true), '')") == ""
        assert queue.value("SELECT count(*) FROM messages.end_event") == 0
