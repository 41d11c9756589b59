"""messages.mark_policed: who writes a policy that publishing has to look at says so before it is committed."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_the_mark_holds_at_once_and_stays_when_the_writer_gives_up(queue: Queue, other: Queue) -> None:
    queue.value("SELECT setval('messages.policed', 1)")

    with queue.conn.transaction(force_rollback=True):
        queue.call("mark_policed")
        assert other.call("is_policed") is True

    assert other.call("is_policed") is True


def test_several_may_mark_at_once(queue: Queue, other: Queue) -> None:
    other.conn.execute("SET lock_timeout = '1s'")
    with queue.conn.transaction():
        queue.call("mark_policed")

        other.call("mark_policed")


def test_while_a_policy_is_being_written_nobody_takes_the_mark_away(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        queue.policy(ttl="1 s")

        assert other.call("unmark_policed") is False

    assert queue.call("is_policed") is True
