"""messages.set_policy_bits: a session that writes a policy for publishing sets the bit of its topic before it commits."""

from __future__ import annotations

from tests.sql.queue import Background, Queue


def test_the_bit_is_set_at_once_and_stays_after_a_rollback(queue: Queue, other: Queue) -> None:
    queue.value("SELECT setval('messages.policy_topic_bits', 1)")

    with queue.conn.transaction(force_rollback=True):
        queue.policy("t", ttl="1 s")
        assert other.call("has_policies") is True

    assert other.call("has_policies") is True


def test_several_sessions_may_set_bits_at_once(queue: Queue, other: Queue) -> None:
    other.conn.execute("SET lock_timeout = '1s'")
    with queue.conn.transaction():
        queue.call("set_policy_bits")

        other.call("set_policy_bits")


def test_a_change_of_subscriptions_waits_for_one_of_policies_and_loses_none_of_its_bits(
    queue: Queue, other: Queue, background: Background
) -> None:
    with queue.conn.transaction():
        queue.policy("t", ttl="1 s")
        subscribed = background.start(
            other.conn.execute, "INSERT INTO messages.subscription (topic, subscriber) VALUES ('u', 'v')"
        )
        while not background.is_blocked(other):
            assert not subscribed.done()

    subscribed.result(timeout=60)
    assert (queue.call("may_have_policy", "t"), queue.call("may_have_policy", "u")) == (True, True)


def test_while_a_policy_is_being_written_no_bit_is_cleared(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        queue.policy(ttl="1 s")

        assert other.call("clear_policy_bits") is False

    assert queue.call("has_policies") is True
