"""messages.raise_policy_flag: who writes a policy that publishing has to look at says so before it is committed."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_the_mark_holds_at_once_and_stays_when_the_writer_gives_up(queue: Queue, other: Queue) -> None:
    queue.value("SELECT setval('messages.policy_flag', 1)")

    with queue.conn.transaction(force_rollback=True):
        queue.call("raise_policy_flag")
        assert other.call("has_policies") is True

    assert other.call("has_policies") is True


def test_several_may_mark_at_once(queue: Queue, other: Queue) -> None:
    other.conn.execute("SET lock_timeout = '1s'")
    with queue.conn.transaction():
        queue.call("raise_policy_flag")

        other.call("raise_policy_flag")


def test_while_a_policy_is_being_written_nobody_takes_the_mark_away(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        queue.policy(ttl="1 s")

        assert other.call("lower_policy_flag") is False

    assert queue.call("has_policies") is True
