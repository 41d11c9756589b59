"""messages.has_policies: one read of a sequence shows whether publishing or settling must check a policy."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


@pytest.fixture(autouse=True)
def bits_cleared(queue: Queue) -> None:
    queue.value("SELECT setval('messages.policy_topic_bits', 1)")


def test_without_such_a_policy_it_is_false(queue: Queue) -> None:
    queue.policy(max_concurrency=1)

    assert queue.call("has_policies") is False


def test_it_is_true_from_the_moment_when_a_policy_is_written_even_before_the_commit(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        queue.policy(ttl="1 s")

        assert other.call("has_policies") is True


def test_a_session_that_does_not_see_a_policy_yet_is_not_limited_by_it(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        queue.policy(ttl="1 s")

        published = other.publish()

    assert other.message(published).expires_at is None
    assert other.message(other.publish()).expires_at is not None
