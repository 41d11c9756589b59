"""messages.has_strict_lock: whether an expired lock of a topic is lost."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


@pytest.mark.parametrize(
    ("default", "own", "strict"),
    [(False, None, False), (True, None, True), (False, True, True), (True, False, False)],
)
def test_the_topics_own_value_wins_over_the_default(
    queue: Queue, default: bool, own: bool | None, strict: bool
) -> None:
    queue.policy("*", strict_lock=default)
    queue.policy("t", strict_lock=own)

    assert queue.call("has_strict_lock", "t") is strict


def test_a_topic_without_a_row_has_the_default(queue: Queue) -> None:
    assert queue.call("has_strict_lock", "t") is False

    queue.policy("*", strict_lock=True)

    assert queue.call("has_strict_lock", "t") is True


@pytest.mark.parametrize(("strict", "lost"), [(False, False), (True, True)])
def test_a_late_settle_before_another_claim_succeeds_unless_strict_lock_is_set(
    queue: Queue, strict: bool, lost: bool
) -> None:
    queue.policy(strict_lock=strict, lock_duration="10 s")
    published = queue.publish()
    claimed = queue.claim()
    queue.later("11 s")

    assert queue.settle("complete", claimed) == ([published] if lost else [])
