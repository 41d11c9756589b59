"""messages.heartbeat: extends a lock, never shortens it, and only for its holder."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from psycopg import errors

from tests.sql.queue import Queue


def remaining(queue: Queue, message_id: int) -> float:
    """Return how many seconds of the lock are left by the queue's clock."""
    left: timedelta = queue.value(
        "SELECT lock_expires_at - messages.now() FROM messages.message WHERE id = %s", [message_id]
    )
    return left.total_seconds()


def beat(queue: Queue, claimed: list[Any], **named: Any) -> list[int]:
    return queue.settle("heartbeat", claimed, **named)


@pytest.fixture(autouse=True)
def stopped_clock(queue: Queue) -> None:
    queue.later("0")


def test_the_lock_lasts_its_full_duration_again(queue: Queue) -> None:
    published = queue.publish()
    claimed = queue.claim()
    queue.later("20 s")

    lost = beat(queue, claimed)

    assert (lost, remaining(queue, published)) == ([], 30)


def test_each_topic_has_its_own_lock_duration(queue: Queue) -> None:
    queue.policy("slow", lock_duration="1 hour")
    slow, fast = queue.publish("slow"), queue.publish("fast")
    claimed = queue.claim("slow", "fast", lock_duration="1 s")

    beat(queue, claimed)

    assert (remaining(queue, slow), remaining(queue, fast)) == (3600, 30)


def test_the_callers_lock_duration_wins_over_the_topics(queue: Queue) -> None:
    published = queue.publish()

    beat(queue, queue.claim(), lock_duration="5 minutes")

    assert remaining(queue, published) == 300


@pytest.mark.parametrize("shorter", ["1 s", "0 s"])
def test_a_lock_is_never_shortened(queue: Queue, shorter: str) -> None:
    published = queue.publish()

    beat(queue, queue.claim(), lock_duration=shorter)

    assert remaining(queue, published) == 30


@pytest.mark.parametrize("lock_duration", ["-1 s", "8 days", "9000 years"])
def test_a_lock_duration_beyond_the_maximum_is_refused(queue: Queue, lock_duration: str) -> None:
    queue.publish()
    claimed = queue.claim()

    with pytest.raises(errors.InvalidParameterValue, match="lock_duration of a heartbeat is") as caught:
        beat(queue, claimed, lock_duration=lock_duration)

    assert caught.value.diag.message_hint == "use an interval from 0 to 7 days"


def test_an_expired_lock_that_was_not_claimed_again_is_extended(queue: Queue) -> None:
    published = queue.publish()
    claimed = queue.claim()
    queue.later("1 hour")

    assert beat(queue, claimed) == []
    assert queue.call("expire_locks") == 0
    assert remaining(queue, published) == 30


def test_a_lost_lock_is_reported_and_nothing_changes(queue: Queue) -> None:
    published = queue.publish(max_attempts=3)
    stale = queue.claim()
    queue.later("1 minute")
    queue.call("expire_locks")
    assert beat(queue, stale) == [published]

    queue.later("1 hour")
    queue.claim(worker="another", lock_duration="1 minute")
    assert beat(queue, stale, lock_duration="1 day") == [published]
    assert remaining(queue, published) == 60


def test_the_same_worker_with_an_older_claim_has_lost_the_lock(queue: Queue) -> None:
    published = queue.publish()
    stale = queue.claim(worker="same")
    queue.settle("release", stale)
    queue.claim(worker="same")

    assert beat(queue, stale) == [published]


def test_of_many_only_the_lost_locks_are_reported(queue: Queue) -> None:
    kept, completed, cancelled = queue.publish_many(3)
    claimed = queue.claim()
    queue.settle("complete", [claimed[1]])
    queue.call("cancel", [cancelled])

    assert sorted(beat(queue, claimed)) == [completed, cancelled]
    assert remaining(queue, kept) == 30


@pytest.mark.parametrize("claim_ids", [[None], [], None])
def test_without_a_claim_id_every_lock_is_lost(queue: Queue, claim_ids: Any) -> None:
    published = queue.publish()

    assert queue.call("heartbeat", [published], claim_ids) == [published]


@pytest.mark.parametrize("nothing", [[], None])
def test_without_messages_no_lock_is_lost(queue: Queue, nothing: Any) -> None:
    assert queue.call("heartbeat", nothing, nothing) == []


def test_a_heartbeat_never_waits_for_a_lock(queue: Queue, other: Queue) -> None:
    """A row that is being settled at this moment needs no longer lock, and is not reported as lost either."""
    queue.publish()
    claimed = queue.claim()

    with queue.conn.transaction():
        queue.settle("complete", claimed)
        assert beat(other, claimed) == []

    assert beat(other, claimed) == [claimed[0].id]


def test_a_heartbeat_writes_no_index(own_database: Any) -> None:
    queue = Queue(own_database.connect())
    queue.publish_many(50)
    claimed = queue.claim()
    updated = (
        "SELECT pg_stat_get_xact_tuples_updated(c) AS every, pg_stat_get_xact_tuples_hot_updated(c) AS hot "
        "FROM CAST('messages.message' AS regclass) AS c"
    )

    with queue.conn.transaction():
        before = queue.row(updated)
        beat(queue, claimed, lock_duration="1 hour")
        after = queue.row(updated)

    assert (after.every - before.every, after.hot - before.hot) == (50, 50)


class TestStrictLock:
    """strict_lock: an expired lock is lost, whether expire_locks has ended it yet or not."""

    @pytest.fixture(autouse=True)
    def strict(self, queue: Queue) -> None:
        queue.policy("t", strict_lock=True, max_attempts=5)

    def test_an_expired_lock_is_not_extended(self, queue: Queue) -> None:
        published = queue.publish()
        claimed = queue.claim()
        queue.later("1 minute")

        assert beat(queue, claimed) == [published]
        assert remaining(queue, published) == -30
        assert queue.call("expire_locks") == 1

    @pytest.mark.parametrize("settle", ["complete", "reject", "fail", "retry", "defer", "release"])
    def test_a_late_settle_is_lost(self, queue: Queue, settle: str) -> None:
        published = queue.publish()
        claimed = queue.claim()
        queue.later("1 minute")

        errors_ = [["late"]] if settle in ("reject", "fail", "retry") else []
        assert queue.settle(settle, claimed, *errors_) == [published]
        assert queue.message(published).claim_id == claimed[0].claim_id

    @pytest.mark.parametrize("settle", ["complete", "reject", "fail", "retry", "defer", "release"])
    def test_without_strict_lock_a_late_settle_succeeds(self, queue: Queue, settle: str) -> None:
        queue.policy("t", strict_lock=False)
        queue.publish()
        claimed = queue.claim()
        queue.later("1 minute")

        errors_ = [["late"]] if settle in ("reject", "fail", "retry") else []
        assert queue.settle(settle, claimed, *errors_) == []

    def test_a_worker_may_settle_its_own_timeout_as_lock_expired(self, queue: Queue) -> None:
        published = queue.publish()
        claimed = queue.claim()
        queue.later("1 minute")

        assert queue.settle("retry", claimed, ["too slow"], result="lock_expired") == []
        assert queue.message(published).history[0]["outcome"] == "lock_expired"


def test_the_lock_is_extended_while_an_open_transaction_waits_for_the_end_of_the_message(
    queue: Queue, other: Queue
) -> None:
    published = queue.publish()
    claimed = queue.claim()
    queue.later("20 s")

    with other.conn.transaction():
        other.rows("SELECT FROM messages.wait_for(%s)", [published])
        beat(queue, claimed)

    assert remaining(queue, published) == 30


@pytest.mark.parametrize("held", ["FOR NO KEY UPDATE", "FOR UPDATE"])
def test_a_row_that_is_being_changed_is_skipped(queue: Queue, other: Queue, held: str) -> None:
    published = queue.publish()
    claimed = queue.claim()
    queue.later("20 s")

    with other.conn.transaction():
        other.rows(f"SELECT FROM messages.message {held}")
        assert beat(queue, claimed) == []

    assert remaining(queue, published) == 10
