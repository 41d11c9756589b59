"""messages.new_blocked: blocked messages that a transaction with a later id has not seen."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_they_are_returned_until_a_tick_has_stamped_them(queue: Queue) -> None:
    waits = queue.send(after=[queue.publish()]).id

    before = queue.call("new_blocked", 10)
    queue.rows("SELECT * FROM messages.tick()")

    assert (before, queue.call("new_blocked", 10)) == ([waits], [])


def test_at_most_the_limit_is_returned(queue: Queue) -> None:
    for _ in range(3):
        queue.send(after=[queue.publish()])

    assert len(queue.call("new_blocked", 2)) == 2


def test_a_transaction_that_has_its_id_already_gets_none(queue: Queue) -> None:
    queue.send(after=[queue.publish()])

    with queue.conn.transaction():
        queue.value("SELECT pg_current_xact_id()::text")
        assert queue.call("new_blocked", 10) is None
