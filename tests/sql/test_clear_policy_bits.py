"""messages.clear_policy_bits: clears the bits that no topic needs any more."""

from __future__ import annotations

import pytest

from tests.sql.queue import Background, Queue


@pytest.fixture(autouse=True)
def marked(queue: Queue) -> None:
    queue.value("SELECT setval('messages.policy_topic_bits', 9223372036854775807)")


def test_all_are_cleared_when_no_topic_has_such_a_policy(queue: Queue) -> None:
    queue.policy(max_concurrency=1)

    assert queue.call("clear_policy_bits") is True

    assert queue.call("has_policies") is False
    assert queue.call("clear_policy_bits") is False


@pytest.mark.parametrize(
    "use",
    [
        "UPDATE messages.topic SET ttl = '1 s' WHERE topic = '*'",
        "INSERT INTO messages.topic (topic, max_depth) VALUES ('t', 1)",
        "INSERT INTO messages.subscription (topic, subscriber) VALUES ('t', 'u')",
        "INSERT INTO messages.held_key (topic, key, message_id) VALUES ('t', 'k', 1)",
        "INSERT INTO messages.depth (topic, rows) VALUES ('t', 1)",
    ],
)
def test_those_stay_that_any_policy_needs(queue: Queue, use: str) -> None:
    queue.conn.execute(use.encode())

    queue.call("clear_policy_bits")

    assert queue.call("clear_policy_bits") is False
    assert queue.call("may_have_policy", "t") is True


def test_a_transaction_with_an_old_snapshot_leaves_them(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")

        assert queue.call("clear_policy_bits") is False


def test_a_session_that_writes_a_policy_during_the_clearing_need_not_wait_and_sets_its_bit_again(
    queue: Queue, other: Queue
) -> None:
    other.conn.execute("SET lock_timeout = '1ms'")
    with queue.conn.transaction():
        assert queue.call("clear_policy_bits") is True
        other.policy(ttl="1 s")

    assert queue.call("has_policies") is True


def test_a_session_that_writes_a_policy_during_the_check_waits_for_it_and_sets_its_bit_again(
    queue: Queue, other: Queue, background: Background
) -> None:
    """The check holds these locks until it has ended; here they are held for longer."""
    with queue.conn.transaction():
        queue.conn.execute("LOCK TABLE messages.topic, messages.subscription IN SHARE MODE")
        written = background.start(other.policy, ttl="1 s")
        while not background.is_blocked(other):
            assert not written.done()
        assert queue.call("clear_policy_bits") is True

    written.result(timeout=60)
    assert queue.call("has_policies") is True


@pytest.mark.parametrize(
    "use",
    [
        "INSERT INTO messages.topic (topic, ttl) VALUES ('t', '1 s')",
        "INSERT INTO messages.subscription (topic, subscriber) VALUES ('t', 'u')",
    ],
)
def test_they_stay_while_an_uncommitted_policy_needs_them(queue: Queue, other: Queue, use: str) -> None:
    with other.conn.transaction():
        other.conn.execute(use.encode())

        assert queue.call("clear_policy_bits") is False

    assert queue.call("has_policies") is True


def test_they_stay_in_the_transaction_that_took_the_policy_back_since_it_may_be_rolled_back(queue: Queue) -> None:
    queue.policy("t", ttl="1 s")
    queue.call("clear_policy_bits")

    with queue.conn.transaction(force_rollback=True):
        queue.policy("t", ttl=None)
        assert queue.call("clear_policy_bits") is False

    assert queue.call("may_have_policy", "t") is True


def test_the_tick_calls_it(queue: Queue) -> None:
    queue.rows("SELECT * FROM messages.tick('hand')")

    assert queue.call("has_policies") is False


def test_a_key_that_outlives_its_policy_is_freed_by_the_end_of_its_message(own_queue: Queue) -> None:
    queue = own_queue
    queue.policy("t", key_ttl="1 hour")
    queue.publish("t", key="k")
    queue.policy("t", key_ttl=None)
    queue.call("clear_policy_bits")

    queue.settle("complete", queue.claim("t"))

    assert queue.rows("SELECT FROM messages.held_key") == []
