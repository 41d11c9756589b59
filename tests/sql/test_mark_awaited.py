"""messages.mark_awaited: from here on ends look for those to whom they matter. What lowers it: test_forget_waiters.py."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_the_mark_is_up_at_once_and_stays_if_the_transaction_is_undone(queue: Queue, other: Queue) -> None:
    queue.conn.execute("SELECT setval('messages.awaited', 1)")

    queue.conn.execute("BEGIN")
    queue.call("mark_awaited")
    during = other.value("SELECT pg_sequence_last_value('messages.awaited')")
    queue.conn.execute("ROLLBACK")

    assert (during, queue.value("SELECT pg_sequence_last_value('messages.awaited')")) == (2, 2)
    queue.conn.execute("SELECT setval('messages.awaited', 1)")


def test_nobody_lowers_it_under_who_has_raised_it(queue: Queue, other: Queue) -> None:
    with other.conn.transaction():
        other.call("mark_awaited")
        queue.call("forget_waiters")
        under_way = queue.value("SELECT pg_sequence_last_value('messages.awaited')")
    queue.call("forget_waiters")

    assert (under_way, queue.value("SELECT pg_sequence_last_value('messages.awaited')")) == (2, 1)


def test_it_stays_while_something_comes_after_something_or_a_step_is_kept(queue: Queue) -> None:
    first = queue.publish()
    queue.send(after=[first])
    queue.call("forget_waiters")
    while_parked = queue.value("SELECT pg_sequence_last_value('messages.awaited')")
    (claimed,) = queue.claim()
    queue.value("SELECT messages.keep_step(%s, %s, 's', '1')", [claimed.id, claimed.claim_id])
    queue.conn.execute("DELETE FROM messages.parked; DELETE FROM messages.edge")
    queue.call("forget_waiters")
    while_kept = queue.value("SELECT pg_sequence_last_value('messages.awaited')")
    queue.settle("complete", [claimed])
    queue.call("forget_waiters")

    assert (while_parked, while_kept) == (2, 2)
    assert queue.value("SELECT pg_sequence_last_value('messages.awaited')") == 1


def test_where_it_was_left_behind_the_tick_raises_it(queue: Queue) -> None:
    queue.send(after=[queue.publish()])
    queue.conn.execute("SELECT setval('messages.awaited', 1)")

    queue.call("prune")

    assert queue.value("SELECT pg_sequence_last_value('messages.awaited')") == 2
