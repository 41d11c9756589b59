"""messages.raise_policy_flag: a session that writes a policy for publishing raises the flag before it commits."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_the_flag_is_raised_at_once_and_stays_after_a_rollback(queue: Queue, other: Queue) -> None:
    queue.value("SELECT setval('messages.policy_flag', 1)")

    with queue.conn.transaction(force_rollback=True):
        queue.call("raise_policy_flag")
        assert other.call("has_policies") is True

    assert other.call("has_policies") is True


def test_several_sessions_may_raise_it_at_once(queue: Queue, other: Queue) -> None:
    other.conn.execute("SET lock_timeout = '1s'")
    with queue.conn.transaction():
        queue.call("raise_policy_flag")

        other.call("raise_policy_flag")


def test_while_a_policy_is_being_written_the_flag_is_not_lowered(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        queue.policy(ttl="1 s")

        assert other.call("lower_policy_flag") is False

    assert queue.call("has_policies") is True
