"""What a tick publishes; pauses and states of schedules."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from psycopg import errors

from tests.sql.queue import Queue

# messages.publish_tick: the message of one tick, and when it is available.

TEN = "2026-11-16 10:00:00+00"


def delays(queue: Queue, *names: str, jitter: str = "1 hour") -> list[timedelta]:
    """Return how long after their tick the messages of some schedules are available."""
    queue.stop_clock("2026-11-16 09:00:00+00")
    for name in names:
        queue.schedule(name, "0 * * * *", topic=name, jitter=jitter)
    queue.stop_clock(TEN)
    queue.call("fire_schedules")
    tick = datetime.fromisoformat(TEN)
    found = {
        row.topic: row.available_at - tick for row in queue.rows("SELECT topic, available_at FROM messages.message")
    }
    return [found[name] for name in names]


def test_without_jitter_it_is_available_at_its_tick(queue: Queue) -> None:
    assert delays(queue, "a", jitter="0") == [timedelta(0)]


def test_jitter_spreads_schedules_over_its_duration(queue: Queue) -> None:
    found = delays(queue, *(f"s{n}" for n in range(40)))

    assert all(timedelta(0) <= each < timedelta(hours=1) for each in found)
    assert len(set(found)) > 35
    assert min(found) < timedelta(minutes=15)
    assert max(found) > timedelta(minutes=45)


def test_jitter_does_not_depend_on_the_session_that_fires_the_tick(queue: Queue) -> None:
    (first,) = delays(queue, "a")
    queue.conn.execute("DELETE FROM messages.schedule; DELETE FROM messages.message")
    (second,) = delays(queue, "a")

    assert first == second > timedelta(0)


def test_jitter_differs_from_tick_to_tick(queue: Queue) -> None:
    queue.stop_clock("2026-11-16 09:00:00+00")
    queue.schedule("a", "0 * * * *", jitter="1 hour", missed="all")
    for hour in range(10, 20):
        queue.stop_clock(f"2026-11-16 {hour}:00:00+00")
        queue.call("fire_schedules")

    found = {
        row.late
        for row in queue.rows("SELECT available_at - (headers ->> 'tick')::timestamptz AS late FROM messages.message")
    }

    assert len(found) > 8


def test_a_missed_tick_is_available_at_once_and_not_in_the_past(queue: Queue) -> None:
    queue.stop_clock("2026-11-16 09:00:00+00")
    queue.schedule("a", "0 * * * *", jitter="1 minute")
    queue.stop_clock("2026-11-16 12:30:00+00")

    queue.call("fire_schedules")

    assert queue.value("SELECT available_at = messages.now() FROM messages.message") is True


# messages.pause_schedule: stops a schedule, with user and reason.


def test_a_paused_schedule_records_begin_user_and_reason(queue: Queue) -> None:
    queue.stop_clock("2026-11-16 09:00:00+00")
    queue.schedule("s")

    assert queue.call("pause_schedule", "s", "the printer is out of paper") is True

    paused = queue.scheduled()
    assert paused.paused_at == queue.call("now")
    assert (paused.paused_by, paused.paused_reason) == (
        queue.value("SELECT session_user::text"),
        "the printer is out of paper",
    )


def test_pausing_again_replaces_the_reason_and_keeps_the_beginning(queue: Queue) -> None:
    queue.schedule("s")
    queue.call("pause_schedule", "s", "a")
    since = queue.scheduled().paused_at

    assert queue.call("pause_schedule", "s", "b") is False
    assert (queue.scheduled().paused_reason, queue.scheduled().paused_at) == ("b", since)


def test_an_unknown_schedule_is_an_error_with_the_fix(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match='there is no schedule "nope"') as caught:
        queue.call("pause_schedule", "nope")

    assert caught.value.diag.message_hint == "see messages.schedule for those there are"


# messages.resume_schedule: resumes a paused schedule.


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_it_continues_with_the_next_tick_and_fires_none_of_the_pause(queue: Queue, missed: str) -> None:
    queue.stop_clock("2026-11-16 09:00:00+00")
    queue.schedule("s", "0 * * * *", missed=missed)
    queue.call("pause_schedule", "s", "why")
    queue.later("3 hours 30 minutes")

    assert queue.call("resume_schedule", "s") is True

    resumed = queue.scheduled()
    assert (resumed.paused_at, resumed.paused_by, resumed.paused_reason) == (None, None, None)
    assert resumed.next_tick.hour == 13
    assert queue.call("fire_schedules") == 0


def test_a_schedule_that_is_not_paused_is_not_changed(queue: Queue) -> None:
    queue.schedule("s")
    before = queue.scheduled()

    assert queue.call("resume_schedule", "s") is False
    assert queue.scheduled() == before


def test_resume_schedule_an_unknown_schedule_is_an_error_with_the_fix(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match='there is no schedule "nope"') as caught:
        queue.call("resume_schedule", "nope")

    assert caught.value.diag.message_hint == "see messages.schedule for those there are"


# messages.schedule_state: every schedule with its state.


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ("failures = 0", "on"),
        ("failures = 1", "failing"),
        ("next_tick = NULL", "over"),
        ("failures = 1, paused_at = now()", "paused"),
    ],
)
def test_a_pause_comes_before_an_error_and_an_error_before_the_end(queue: Queue, change: str, state: str) -> None:
    queue.schedule("s", "@daily")
    with queue.conn.transaction():
        # The trigger would set next_tick again.
        queue.conn.execute("SET LOCAL session_replication_role = replica")
        queue.conn.execute(f"UPDATE messages.schedule SET {change}".encode())

    assert queue.value("SELECT state FROM messages.schedule_state") == state
