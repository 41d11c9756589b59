"""Backoff, and keys of messages that are retried."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.sql.queue import Queue

# messages.backoff_delay: how long until the next attempt.


def backoff(queue: Queue, attempt: int, random: float = 0.5, **policy: Any) -> float:
    wait: timedelta = queue.call("backoff_delay", policy, attempt, random)
    return wait.total_seconds()


@pytest.mark.parametrize(
    ("policy", "waits"),
    [
        ({"kind": "none"}, [0, 0, 0, 0]),
        ({"kind": "none", "base": "5 s"}, [0, 0, 0, 0]),
        ({"kind": "constant", "base": "5 s"}, [5, 5, 5, 5]),
        ({"kind": "linear", "base": "5 s"}, [5, 10, 15, 20]),
        ({"kind": "linear", "base": "5 s", "step": "1 s"}, [5, 6, 7, 8]),
        ({"kind": "exponential", "base": "5 s"}, [5, 10, 20, 40]),
        ({"kind": "exponential", "base": "5 s", "factor": 3}, [5, 15, 45, 135]),
        ({"kind": "exponential", "base": "5 s", "factor": 1}, [5, 5, 5, 5]),
        ({"kind": "exponential", "base": "100 ms"}, [0.1, 0.2, 0.4, 0.8]),
        ({"kind": "exponential"}, [1, 2, 4, 8]),
        ({"kind": "linear"}, [1, 2, 3, 4]),
        ({"kind": "constant"}, [1, 1, 1, 1]),
        ({"kind": "constant", "base": 2}, [2, 2, 2, 2]),
    ],
)
def test_each_kind_grows_according_to_its_rule_from_the_first_attempt(
    queue: Queue, policy: dict[str, Any], waits: list[float]
) -> None:
    assert [backoff(queue, attempt, **policy) for attempt in (1, 2, 3, 4)] == pytest.approx(waits)


@pytest.mark.parametrize("kind", ["constant", "linear", "exponential"])
def test_the_cap_bounds_every_kind(queue: Queue, kind: str) -> None:
    assert backoff(queue, 50, kind=kind, base="1 minute", cap="30 s") == 30


def test_without_a_cap_the_cap_is_a_day(queue: Queue) -> None:
    assert backoff(queue, 40, kind="exponential") == 86400


@pytest.mark.parametrize("attempt", [61, 1000, 2_147_483_647])
def test_a_large_number_of_attempts_does_not_overflow(queue: Queue, attempt: int) -> None:
    assert backoff(queue, attempt, kind="exponential", base="10 years", factor=1000, cap="10 years") <= 10 * 366 * 86400
    assert backoff(queue, attempt, kind="linear", base="10 years", step="10 years", cap="10 years") <= 10 * 366 * 86400


@pytest.mark.parametrize("attempt", [0, -5])
def test_an_attempt_below_1_counts_as_the_first(queue: Queue, attempt: int) -> None:
    assert backoff(queue, attempt, kind="linear", base="5 s") == 5


@pytest.mark.parametrize(("random", "wait"), [(0, 0), (0.25, 2.5), (0.999, 9.99)])
def test_full_jitter_draws_from_zero_to_the_delay(queue: Queue, random: float, wait: float) -> None:
    assert backoff(queue, 1, random, kind="constant", base="10 s", jitter="full") == pytest.approx(wait)


@pytest.mark.parametrize(("random", "wait"), [(0, 8), (0.5, 10), (0.999, 11.996)])
def test_a_jitter_of_a_fifth_draws_from_a_fifth_below_to_a_fifth_above(
    queue: Queue, random: float, wait: float
) -> None:
    assert backoff(queue, 1, random, kind="constant", base="10 s", jitter=0.2) == pytest.approx(wait)


def test_jitter_is_drawn_after_the_cap(queue: Queue) -> None:
    assert backoff(queue, 9, 0.5, kind="exponential", base="10 s", cap="20 s", jitter="full") == 10


# key_on_retry: key_on_retry: a message that becomes ready again while a newer one of its key is ready is superseded, or
# both are kept; it is never an error.

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
