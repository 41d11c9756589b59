"""messages.defer and messages.expire_locks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.server.postgres import Database
from tests.sql.queue import Listener, Queue

# messages.defer: the message returns later, and no attempt counts. (What release and defer share:
# test_return_attempts.py.)


@pytest.fixture(autouse=True)
def stopped_clock(queue: Queue) -> None:
    queue.later("0")


def test_a_deferred_message_is_ready_after_its_delay(queue: Queue) -> None:
    published = queue.publish()

    queue.settle("defer", queue.claim(), [timedelta(minutes=5)])

    assert queue.claim() == []
    queue.later("5 minutes")
    assert [(c.id, c.attempt) for c in queue.claim()] == [(published, 1)]


def test_a_claim_has_the_number_of_runs_although_the_attempt_is_returned(queue: Queue) -> None:
    queue.publish()
    for run in (1, 2, 3):
        claimed = queue.claim_one()
        assert (claimed.attempt, claimed.runs) == (1, run)
        queue.settle("defer", [claimed])

    waits = queue.claim_one(start=0)
    assert (waits.attempt, waits.runs) == (1, 4), "the run of a waiting message is counted when it begins"
    queue.settle("release", [waits])
    assert queue.claim_one().runs == 4


def test_the_time_wins_over_the_delay(queue: Queue) -> None:
    until = datetime(2100, 1, 1, tzinfo=UTC)
    by_time, by_delay, at_once = queue.publish_many(3)

    queue.settle("defer", queue.claim(), [timedelta(hours=1), timedelta(hours=1), None], [until, None, None])

    now = queue.call("now")
    assert [queue.message(m).available_at for m in (by_time, by_delay, at_once)] == [
        until,
        now + timedelta(hours=1),
        now,
    ]


def test_without_time_and_delay_it_is_ready_at_once_but_behind_waiting_messages(queue: Queue) -> None:
    deferred, waiting = queue.publish(wait="-2 s"), queue.publish(wait="-1 s")
    queue.settle("defer", queue.claim(limit=1))

    assert [c.id for c in queue.claim()] == [waiting, deferred]


def test_a_delay_below_zero_means_at_once(queue: Queue) -> None:
    published = queue.publish()

    queue.settle("defer", queue.claim(), [timedelta(days=-1)])

    assert queue.message(published).available_at == queue.call("now")


@pytest.mark.parametrize(
    "absurd",
    [
        "ARRAY['1000000 years', NULL]::interval[], NULL",
        "NULL, ARRAY['infinity', NULL]::timestamptz[]",
        "NULL, ARRAY['-infinity', NULL]::timestamptz[]",
        "NULL, ARRAY['9999-12-31', NULL]::timestamptz[]",
        "NULL, ARRAY['0001-01-01', NULL]::timestamptz[]",
    ],
)
def test_a_time_that_cannot_be_stored_harms_no_message_of_the_batch(queue: Queue, absurd: str) -> None:
    published = queue.publish_many(2)
    claimed = queue.claim()

    lost = queue.value(f"SELECT messages.defer(%s, %s, {absurd})", [published, [c.claim_id for c in claimed]])

    assert lost == []
    assert queue.ids() == published
    assert queue.message(published[1]).available_at == queue.call("now")


def test_a_deferral_saves_keeps_and_clears_the_checkpoint(queue: Queue) -> None:
    published = queue.publish()

    def defer_with(state: Any) -> Any:
        queue.settle("defer", queue.claim(), None, None, [state])
        return queue.message(published).state

    assert [defer_with(s) for s in (Jsonb({"page": 3}), None, Jsonb(None))] == [{"page": 3}, {"page": 3}, None]


def test_the_history_records_the_deferral(queue: Queue) -> None:
    published = queue.publish()

    queue.settle("defer", queue.claim())

    (entry,) = queue.message(published).history
    assert (entry["attempt"], entry["worker"], entry["outcome"]) == (1, "w", "deferred")


def test_a_deferral_notifies_only_a_sleeper_that_would_look_too_late(
    queue: Queue, listen: Callable[..., Listener]
) -> None:
    listener = listen("new_message")
    queue.publish("soon")
    queue.publish("late")
    queue.arm(look_in="10 minutes")

    queue.settle("defer", queue.claim("soon"), [timedelta(minutes=1)])
    queue.settle("defer", queue.claim("late"), [timedelta(hours=1)])

    assert listener.received() == ["soon"]


def test_defer_and_publish_in_one_transaction_make_a_message_that_never_ends(queue: Queue, other: Queue) -> None:
    periodic = queue.publish("cron")
    claimed = queue.claim("cron")

    with queue.conn.transaction(force_rollback=True):
        queue.publish("work")
        queue.settle("defer", claimed, [timedelta(minutes=1)])
    assert other.claim("work") == []

    with queue.conn.transaction():
        queue.publish("work")
        assert queue.settle("defer", claimed, [timedelta(minutes=1)]) == []
    assert len(other.claim("work")) == 1
    assert queue.message(periodic).claim_id is None


# messages.expire_locks: ends the attempts of workers that died, froze or lost the database.


def test_by_default_an_expired_lock_archives_its_message_as_lock_expired(queue: Queue) -> None:
    published = queue.publish()
    queue.claim(worker="host-1")
    queue.later("31 s")

    assert queue.call("expire_locks") == 1

    archived = queue.archived(published)
    assert (queue.message(published), archived.result, archived.handled_by) == (None, "lock_expired", "host-1")
    assert archived.error.startswith("lock_expired: host-1 held it from ")


def test_a_message_with_attempts_left_is_ready_again(queue: Queue) -> None:
    queue.policy(backoff={"kind": "none"})
    published = queue.publish(max_attempts=2)
    queue.claim(worker="dead")
    queue.later("31 s")

    queue.call("expire_locks")

    (claimed,) = queue.claim(worker="alive")
    assert (claimed.id, claimed.attempt) == (published, 2)
    (entry,) = queue.message(published).history
    assert (entry["worker"], entry["outcome"]) == ("dead", "lock_expired")


def test_expired_locks_use_up_the_same_attempts_as_failures(queue: Queue) -> None:
    queue.policy(backoff={"kind": "none"}, max_attempts=3)
    published = queue.publish()
    queue.settle("retry", queue.claim(), ["boom"])
    for _ in range(2):
        queue.claim()
        queue.later("31 s")
        queue.call("expire_locks")

    archived = queue.archived(published)
    assert (archived.result, archived.attempts) == ("lock_expired", 3)


def test_a_lock_is_valid_until_its_very_last_moment(queue: Queue) -> None:
    queue.publish()
    queue.claim(lock_duration="30 s")

    queue.later("30 s")
    assert queue.call("expire_locks") == 0

    queue.later("1 microsecond")
    assert queue.call("expire_locks") == 1


def test_messages_without_a_lock_are_not_changed(queue: Queue) -> None:
    published = queue.publish(wait="-1 day")

    assert queue.call("expire_locks") == 0
    assert queue.message(published).attempts == 0


def test_one_call_is_bounded_and_the_next_continues(queue: Queue) -> None:
    queue.publish_many(5)
    queue.claim()
    queue.later("1 hour")

    assert [queue.call("expire_locks", 2) for _ in range(4)] == [2, 2, 1, 0]


def test_the_delay_is_the_topics_lock_expired_delay(queue: Queue) -> None:
    queue.policy(max_attempts=2, lock_expired_delay="7 s")
    published = queue.publish()
    queue.claim()
    queue.later("1 hour")

    queue.call("expire_locks")

    assert queue.message(published).available_at - queue.call("now") == timedelta(seconds=7)


def test_two_concurrent_calls_share_the_work_without_waiting(queue: Queue, other: Queue) -> None:
    queue.publish_many(4)
    queue.claim()
    queue.later("1 hour")
    other.later("1 hour")

    with queue.conn.transaction():
        first = queue.call("expire_locks", 2)
        second = other.call("expire_locks", 10)

    assert (first, second) == (2, 2)


def test_a_worker_that_resumes_after_its_lock_expired_is_fenced(queue: Queue, database: Database) -> None:
    frozen = Queue(database.connect())
    published = queue.publish(max_attempts=2)
    claimed = frozen.claim(worker="frozen")
    queue.later("31 s")
    queue.call("expire_locks")
    queue.later("1 day")
    queue.settle("complete", queue.claim(worker="alive"))

    assert frozen.settle("heartbeat", claimed) == [published]
    assert frozen.settle("complete", claimed) == [published]
    assert queue.archived(published).handled_by == "alive"


def test_an_expired_lock_is_ended_only_after_the_open_transaction_of_a_step_commits(queue: Queue, other: Queue) -> None:
    """It does not become ready before: the next attempt would repeat the step. And expire_locks does not wait."""
    published = queue.publish(max_attempts=2)
    claimed = queue.claim_one()
    queue.later("31 s")

    with other.conn.transaction():
        other.value("SELECT messages.save_step(%s, %s, 'charge', '1')", [claimed.id, claimed.claim_id])
        queue.conn.execute("SET lock_timeout = '1s'")
        during = queue.call("expire_locks")
    queue.conn.execute("RESET lock_timeout")

    assert (during, queue.call("expire_locks")) == (0, 1)
    queue.later("1 hour")
    again = queue.claim_one()
    assert again.id == published
    assert [
        row.name for row in queue.rows("SELECT name FROM messages.load_steps(%s, %s)", [again.id, again.claim_id])
    ] == ["charge"]
