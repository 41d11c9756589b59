"""messages.has_policies: one look at a sequence says whether publishing or settling has a policy to look at."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


@pytest.fixture(autouse=True)
def unmarked(queue: Queue) -> None:
    queue.value("SELECT setval('messages.policy_flag', 1)")


def test_a_queue_whose_topics_use_no_such_policy_is_not(queue: Queue) -> None:
    queue.policy(max_concurrency=1)

    assert queue.call("has_policies") is False


def test_it_is_from_the_moment_at_which_a_policy_is_written_also_for_those_who_cannot_see_it_yet(
    queue: Queue, other: Queue
) -> None:
    with queue.conn.transaction():
        queue.policy(ttl="1 s")

        assert other.call("has_policies") is True


def test_who_does_not_see_a_policy_yet_meets_no_policy(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        queue.policy(ttl="1 s")

        published = other.publish()

    assert other.message(published).expires_at is None
    assert other.message(other.publish()).expires_at is not None
