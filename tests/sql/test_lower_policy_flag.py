"""messages.lower_policy_flag: lowers the flag once no policy needs it."""

from __future__ import annotations

import pytest

from tests.sql.queue import Background, Queue


@pytest.fixture(autouse=True)
def marked(queue: Queue) -> None:
    queue.call("raise_policy_flag")


def test_it_is_lowered_when_no_topic_has_such_a_policy(queue: Queue) -> None:
    queue.policy(max_concurrency=1)

    assert queue.call("lower_policy_flag") is True

    assert queue.call("has_policies") is False
    assert queue.call("lower_policy_flag") is False


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
def test_it_stays_while_any_policy_needs_it(queue: Queue, use: str) -> None:
    queue.conn.execute(use.encode())

    assert queue.call("lower_policy_flag") is False
    assert queue.call("has_policies") is True


def test_a_transaction_with_an_old_snapshot_leaves_it(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")

        assert queue.call("lower_policy_flag") is False


def test_a_session_that_writes_a_policy_during_the_lowering_need_not_wait_and_raises_it_again(
    queue: Queue, other: Queue
) -> None:
    other.conn.execute("SET lock_timeout = '1ms'")
    with queue.conn.transaction():
        assert queue.call("lower_policy_flag") is True
        other.policy(ttl="1 s")

    assert queue.call("has_policies") is True


def test_a_session_that_writes_a_policy_during_the_check_waits_for_it_and_raises_it_again(
    queue: Queue, other: Queue, background: Background
) -> None:
    """The check holds these locks until it has ended; here they are held for longer."""
    with queue.conn.transaction():
        queue.conn.execute("LOCK TABLE messages.topic, messages.subscription IN SHARE MODE")
        written = background.start(other.policy, ttl="1 s")
        while not background.is_blocked(other):
            assert not written.done()
        assert queue.call("lower_policy_flag") is True

    written.result(timeout=60)
    assert queue.call("has_policies") is True


@pytest.mark.parametrize(
    "use",
    [
        "INSERT INTO messages.topic (topic, ttl) VALUES ('t', '1 s')",
        "INSERT INTO messages.subscription (topic, subscriber) VALUES ('t', 'u')",
    ],
)
def test_it_stays_while_an_uncommitted_policy_needs_it(queue: Queue, other: Queue, use: str) -> None:
    with other.conn.transaction():
        other.conn.execute(use.encode())

        assert queue.call("lower_policy_flag") is False

    assert queue.call("has_policies") is True


def test_the_tick_calls_it(queue: Queue) -> None:
    queue.rows("SELECT * FROM messages.tick('hand')")

    assert queue.call("has_policies") is False
