"""messages.retry: the attempt failed.

The message gets another attempt after a delay while attempts are left; otherwise it is archived.

What every settle shares is in test_archive.py, the delays themselves in test_backoff.py.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.sql.queue import Background, Listener, Queue

NOW = [timedelta(0)]


def wait_of(queue: Queue, message_id: int) -> timedelta:
    """Return how long the message waits from now on, by the queue's clock."""
    wait: timedelta = queue.value(
        "SELECT available_at - messages.now() FROM messages.message WHERE id = %s", [message_id]
    )
    return wait


@pytest.fixture(autouse=True)
def no_jitter(queue: Queue) -> None:
    queue.policy("*", backoff={"kind": "constant", "base": "60 s"}, max_attempts=3)


@pytest.fixture
def stopped_clock(queue: Queue) -> None:
    queue.later("0")


def test_a_failed_attempt_is_followed_by_another_after_the_backoff(queue: Queue, stopped_clock: None) -> None:
    published = queue.publish()

    lost = queue.settle("retry", queue.claim(), ["boom"])

    assert (lost, wait_of(queue, published)) == ([], timedelta(seconds=60))
    row = queue.message(published)
    assert (row.attempts, row.claim_id, row.locked_by, row.locked_at, row.lock_expires_at) == (
        1,
        None,
        None,
        None,
        None,
    )


def test_the_last_attempt_is_archived_as_failed_with_its_error(queue: Queue) -> None:
    published = queue.publish()
    for n in range(3):
        queue.settle("retry", queue.claim(), [f"boom {n}"], NOW)

    archived = queue.archived(published)
    assert (archived.result, archived.attempts, archived.error) == ("failed", 3, "boom 2")


def test_by_default_the_first_attempt_is_the_last(queue: Queue) -> None:
    queue.policy("*", max_attempts=1)
    published = queue.publish()

    queue.settle("retry", queue.claim(), ["boom"])

    assert queue.archived(published).result == "failed"


def test_a_retried_message_may_go_to_another_worker(queue: Queue) -> None:
    published = queue.publish()
    queue.settle("retry", queue.claim(worker="a"), ["boom"], NOW)

    (claimed,) = queue.claim(worker="b")

    assert (claimed.id, claimed.attempt) == (published, 2)


def test_the_handlers_own_delay_wins_over_the_backoff(queue: Queue, stopped_clock: None) -> None:
    hasty, patient, default = queue.publish_many(3)

    queue.settle("retry", queue.claim(), ["boom"] * 3, [timedelta(seconds=1), timedelta(hours=2), None])

    assert [wait_of(queue, m).total_seconds() for m in (hasty, patient, default)] == [1, 7200, 60]


def test_a_negative_delay_means_at_once(queue: Queue, stopped_clock: None) -> None:
    published = queue.publish()

    queue.settle("retry", queue.claim(), ["boom"], [timedelta(days=-1)])

    assert wait_of(queue, published) == timedelta(0)


@pytest.mark.parametrize("delay", ["'1000000 years'", "'178000000 years'"])
def test_a_delay_that_cannot_be_stored_harms_no_message_of_the_batch(queue: Queue, delay: str) -> None:
    absurd, other = queue.publish_many(2)
    (claim_id, _) = (c.claim_id for c in queue.claim())

    lost = queue.value(
        f"SELECT messages.retry(%s, %s, ARRAY['a', 'b'], ARRAY[{delay}, '1 s']::interval[])",
        [[absurd, other], [claim_id] * 2],
    )

    assert lost == []
    assert queue.message(absurd).available_at.year > 3000
    assert queue.message(other).available_at.year < 3000


def test_the_delay_grows_with_the_attempts(queue: Queue) -> None:
    queue.policy(backoff={"kind": "exponential", "base": "10 s", "factor": 3}, max_attempts=9)
    published = queue.publish()
    waits = []
    for _ in range(4):
        queue.later("1 day")
        queue.settle("retry", queue.claim(), ["boom"])
        waits.append(wait_of(queue, published).total_seconds())

    assert waits == [10, 30, 90, 270]


def test_the_backoff_of_the_topic_wins_over_the_default(queue: Queue, stopped_clock: None) -> None:
    queue.policy("t", backoff={"kind": "constant", "base": "5 s"})
    topics, defaults = queue.publish("t"), queue.publish("u")

    queue.settle("retry", queue.claim("t", "u"), ["boom"] * 2)

    assert [wait_of(queue, m).total_seconds() for m in (topics, defaults)] == [5, 60]


def test_full_jitter_spreads_messages_that_failed_together(queue: Queue, stopped_clock: None) -> None:
    queue.policy(backoff={"kind": "constant", "base": "100 s", "jitter": "full"})
    published = queue.publish_many(200)

    queue.settle("retry", queue.claim(limit=200), ["boom"] * 200)

    waits = [wait_of(queue, m).total_seconds() for m in published]
    assert 0 <= min(waits) < 20
    assert 80 < max(waits) <= 100


def test_max_total_ends_attempts_that_would_begin_after_it(queue: Queue) -> None:
    queue.policy(backoff={"kind": "constant", "base": "40 s", "max_total": "100 s"}, max_attempts=0)
    published = queue.publish()
    queue.later("0")
    for _ in range(2):
        queue.settle("retry", queue.claim(), ["boom"])  # at 0 s and at 40 s
        queue.later("40 s")

    queue.settle("retry", queue.claim(), ["the last"])  # at 80 s: the next would begin at 120 s

    archived = queue.archived(published)
    assert (archived.result, archived.error, archived.attempts) == ("failed", "the last", 3)


def test_max_total_counts_from_the_first_attempt_not_from_the_publish(queue: Queue) -> None:
    queue.policy(backoff={"kind": "constant", "base": "40 s", "max_total": "100 s"})
    published = queue.publish(wait="-1 day")

    queue.settle("retry", queue.claim(), ["boom"])

    assert queue.message(published).attempts == 1


def test_the_history_has_each_ended_attempt(queue: Queue, stopped_clock: None) -> None:
    published = queue.publish()
    queue.settle("retry", queue.claim(worker="a"), ["boom"], NOW)
    queue.settle("retry", queue.claim(worker="b"), [None], NOW, result="lock_expired")

    first, second = queue.message(published).history

    now = queue.value("SELECT to_jsonb(messages.now())")
    assert first == {
        "attempt": 1,
        "run": 1,
        "worker": "a",
        "started": now,
        "ended": now,
        "outcome": "failed",
        "error": "boom",
    }
    assert second == {"attempt": 2, "run": 2, "worker": "b", "started": now, "ended": now, "outcome": "lock_expired"}


def test_the_history_keeps_the_first_and_the_last_19_attempts(queue: Queue) -> None:
    queue.policy(max_attempts=0)
    published = queue.publish()
    for n in range(1, 31):
        queue.settle("retry", queue.claim(), [f"boom {n}"], NOW)

    assert [h["attempt"] for h in queue.message(published).history] == [1, *range(12, 31)]


def test_a_checkpoint_is_saved_kept_and_cleared(queue: Queue) -> None:
    published = queue.publish(max_attempts=0)

    def retry_with(state: Any) -> Any:
        queue.settle("retry", queue.claim(), ["boom"], NOW, [state])
        return queue.message(published).state

    assert retry_with(Jsonb({"page": 3})) == {"page": 3}
    assert queue.claim_one().state == '{"page": 3}'
    queue.conn.execute(
        "UPDATE messages.message SET claim_id = NULL, locked_by = NULL, locked_at = NULL, lock_expires_at = NULL"
    )
    assert retry_with(None) == {"page": 3}
    assert retry_with(Jsonb(None)) is None


def test_each_message_of_a_batch_has_its_own_outcome(queue: Queue) -> None:
    again, over, lost = queue.publish(), queue.publish(max_attempts=1), queue.publish()
    claimed = queue.claim()
    queue.call("cancel", [lost])

    assert queue.settle("retry", claimed, ["a", "b", "c"]) == [lost]
    assert queue.message(again).history[0]["error"] == "a"
    assert queue.archived(over).error == "b"
    assert queue.archived(lost).result == "cancelled"


@pytest.mark.parametrize(("result", "seconds"), [("failed", 60), ("lock_expired", 7)])
def test_lock_expired_delay_replaces_the_backoff_after_a_lock_expired(
    queue: Queue, stopped_clock: None, result: str, seconds: int
) -> None:
    queue.policy(lock_expired_delay="7 s")
    published = queue.publish()

    queue.settle("retry", queue.claim(), ["boom"], result=result)

    assert wait_of(queue, published).total_seconds() == seconds


@pytest.mark.parametrize("result", ["success", "cancelled", "", "nonsense"])
def test_a_retry_with_another_result_is_refused(queue: Queue, result: str) -> None:
    queue.publish()
    claimed = queue.claim()

    with pytest.raises(errors.InvalidParameterValue, match=f"result {result} of a retry is not failed or lock_expired"):
        queue.settle("retry", claimed, ["boom"], result=result)


def test_a_repeated_retry_changes_nothing(queue: Queue) -> None:
    published = queue.publish()
    claimed = queue.claim()
    queue.settle("retry", claimed, ["boom"])
    before = queue.message(published)

    queue.settle("retry", claimed, ["boom"])

    assert queue.message(published) == before


def test_a_retried_message_notifies_a_sleeper_that_would_look_too_late(
    queue: Queue, listen: Callable[..., Listener]
) -> None:
    listener = listen("new_message")
    queue.publish_many(3)
    queue.publish("u")
    claimed = queue.claim("t", "u")
    queue.arm(look_in="10 minutes")

    queue.settle("retry", claimed, ["boom"] * 4)

    assert sorted(listener.received()) == ["t", "u"]


def test_a_message_that_is_ready_after_the_next_poll_of_the_sleeper_sends_nothing(
    queue: Queue, listen: Callable[..., Listener]
) -> None:
    listener = listen("new_message")
    queue.publish()
    claimed = queue.claim()
    queue.arm(look_in="5 s")

    queue.settle("retry", claimed, ["boom"])

    assert listener.received() == []


def test_of_a_concurrent_retry_and_expiry_only_one_ends_the_attempt(
    queue: Queue, other: Queue, background: Background
) -> None:
    published = queue.publish()
    claimed = queue.claim()
    queue.later("1 hour")

    with queue.conn.transaction():
        queue.call("expire_locks")
        retry = background.start_blocked(other, other.settle, "retry", claimed, ["boom"])

    assert retry.result(timeout=60) == [published]
    assert [h["outcome"] for h in queue.message(published).history] == ["lock_expired"]


def test_expire_locks_skips_messages_that_are_being_settled(queue: Queue, other: Queue) -> None:
    queue.publish()
    claimed = queue.claim()
    other.later("1 hour")

    with queue.conn.transaction():
        queue.settle("complete", claimed)
        assert other.call("expire_locks") == 0


def test_a_row_that_is_claimed_again_in_the_meantime_is_not_retried_twice(
    queue: Queue, other: Queue, background: Background
) -> None:
    published = queue.publish()
    claimed = queue.claim()

    with queue.conn.transaction():
        queue.settle("release", claimed)
        retry = background.start_blocked(other, other.settle, "retry", claimed, ["boom"])

    assert retry.result(timeout=60) == [published]
    assert queue.message(published).attempts == 0


def test_a_retry_above_read_committed_always_notifies_since_its_snapshot_may_be_older_than_a_flag(
    queue: Queue, other: Queue, listen: Callable[..., Listener]
) -> None:
    listener = listen("new_message")
    queue.publish()
    claimed = queue.claim()
    queue.conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

    with queue.conn.transaction():
        queue.ids()  # takes the snapshot
        other.arm()
        queue.settle("retry", claimed, ["boom"], NOW)

    assert listener.received() == ["t"]
