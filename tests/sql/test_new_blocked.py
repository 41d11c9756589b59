"""messages.new_blocked: what waits for others and was not seen by a transaction that draws its number afterwards."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_they_are_told_until_a_tick_has_stamped_them(queue: Queue) -> None:
    waits = queue.send(after=[queue.publish()]).id

    before = queue.call("new_blocked", 10)
    queue.rows("SELECT * FROM messages.tick()")

    assert (before, queue.call("new_blocked", 10)) == ([waits], [])


def test_no_more_are_told_than_asked_for(queue: Queue) -> None:
    for _ in range(3):
        queue.send(after=[queue.publish()])

    assert len(queue.call("new_blocked", 2)) == 2


def test_a_transaction_that_has_its_number_already_sees_none(queue: Queue) -> None:
    queue.send(after=[queue.publish()])

    with queue.conn.transaction():
        queue.value("SELECT pg_current_xact_id()::text")
        assert queue.call("new_blocked", 10) is None
