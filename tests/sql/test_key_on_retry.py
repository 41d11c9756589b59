"""key_on_retry: a message that becomes ready again while a newer one of its key is ready is superseded, or both are kept; it is never an error."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.sql.queue import Queue

give_back = pytest.mark.parametrize("settle", ["release", "defer"])


def test_the_topics_own_value_wins_over_the_default(queue: Queue) -> None:
    queue.policy("*", key_on_retry="keep")
    queue.policy("t", key_on_retry="supersede")
    queue.policy("silent", max_attempts=3)

    assert [queue.call("key_on_retry", topic) for topic in ("t", "silent", "unknown")] == ["supersede", "keep", "keep"]


def test_a_failed_attempt_is_superseded_by_a_newer_message_of_its_key(queue: Queue) -> None:
    older = queue.publish(key="k", max_attempts=3)
    claimed = queue.claim_one()
    newer = queue.publish(key="k")

    lost = queue.settle("retry", [claimed], ["boom"])

    archived = queue.archived(older)
    assert (lost, queue.ids()) == ([], [newer])
    assert (archived.result, archived.error) == (
        "cancelled",
        "superseded: a newer message with the same key is ready; boom",
    )


def test_with_keep_both_messages_stay(queue: Queue) -> None:
    queue.policy("t", key_on_retry="keep")
    older = queue.publish(key="k", max_attempts=3)
    claimed = queue.claim_one()
    newer = queue.publish(key="k")

    lost = queue.settle("retry", [claimed], ["boom"], [timedelta(0)])

    assert (lost, queue.ids()) == ([], [older, newer])
    assert [c.id for c in queue.claim()] == [newer, older]


def test_an_expired_lock_is_superseded_too(queue: Queue) -> None:
    older = queue.publish(key="k", max_attempts=3)
    queue.claim(lock_duration="0 s")
    newer = queue.publish(key="k")

    queue.call("expire_locks")

    assert queue.ids() == [newer]
    assert queue.archived(older).result == "cancelled"


def test_the_last_attempt_fails_as_usual(queue: Queue) -> None:
    older = queue.publish(key="k", max_attempts=1)
    claimed = queue.claim_one()
    queue.publish(key="k")

    queue.settle("retry", [claimed], ["boom"])

    assert (queue.archived(older).result, queue.archived(older).error) == ("failed", "boom")


def test_in_a_batch_only_messages_with_a_newer_one_of_their_key_are_superseded(queue: Queue) -> None:
    superseded, alone, keyless = (queue.publish(key=key, max_attempts=3) for key in ("k", "l", None))
    last = queue.publish(key="m", max_attempts=1)
    claimed = queue.claim()
    newer = queue.publish(key="k")

    lost = queue.settle("retry", claimed, ["boom"] * 4)

    assert (lost, queue.ids()) == ([], [alone, keyless, newer])
    assert [queue.archived(each).result for each in (superseded, last)] == ["cancelled", "failed"]


def test_a_newer_message_that_runs_or_was_attempted_supersedes_none(queue: Queue) -> None:
    older = queue.publish(key="k", max_attempts=3)
    claimed = queue.claim_one()
    newer = queue.publish(key="k")
    queue.claim()

    queue.settle("retry", [claimed], ["boom"])

    assert queue.ids() == [older, newer]


@give_back
def test_with_keep_a_released_message_loses_its_key_so_that_both_can_stay(queue: Queue, settle: str) -> None:
    queue.policy("t", key_on_retry="keep")
    older = queue.publish(key="k", max_attempts=1)
    claimed = queue.claim_one()
    newer = queue.publish(key="k")

    lost = queue.settle(settle, [claimed])

    assert (lost, queue.ids()) == ([], [older, newer])
    assert (queue.message(older).attempts, queue.message(older).key) == (0, None)
    assert {c.id for c in queue.claim()} == {older, newer}


@give_back
def test_with_keep_and_no_other_message_the_attempt_is_returned(queue: Queue, settle: str) -> None:
    queue.policy("t", key_on_retry="keep")
    published = queue.publish(key="k")

    queue.settle(settle, queue.claim())

    assert queue.message(published).attempts == 0


@give_back
def test_with_keep_two_messages_that_are_released_together_both_stay(queue: Queue, settle: str) -> None:
    queue.policy("t", key_on_retry="keep")
    first = queue.publish(key="k", max_attempts=3)
    claimed = queue.claim()
    second = queue.publish(key="k", max_attempts=3)
    claimed += queue.claim()

    lost = queue.settle(settle, claimed)

    assert (lost, queue.ids()) == ([], [first, second])
    assert [(queue.message(each).attempts, queue.message(each).key) for each in (first, second)] == [
        (0, None),
        (0, "k"),
    ]
