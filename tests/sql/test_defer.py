"""messages.defer: the message returns later, and no attempt counts. (What release and defer share: test_return_attempts.py.)"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.sql.queue import Listener, Queue


@pytest.fixture(autouse=True)
def stopped_clock(queue: Queue) -> None:
    queue.later("0")


def test_a_deferred_message_is_ready_after_its_delay(queue: Queue) -> None:
    published = queue.publish()

    queue.settle("defer", queue.claim(), [timedelta(minutes=5)])

    assert queue.claim() == []
    queue.later("5 minutes")
    assert [(c.id, c.attempt) for c in queue.claim()] == [(published, 1)]


def test_a_deferred_message_is_ready_at_its_time(queue: Queue) -> None:
    published = queue.publish()
    until = datetime(2100, 1, 1, tzinfo=UTC)

    queue.settle("defer", queue.claim(), None, [until])

    assert queue.message(published).available_at == until


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
