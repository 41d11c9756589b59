"""Changes of schedules, and runs at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from psycopg import errors

from tests.sql.queue import Listener, Queue, Row

# messages.next_schedule_due: how long until the next tick of a schedule.


@pytest.fixture
def queue(queue: Queue) -> Queue:
    """The clock is stopped at nine o'clock."""
    queue.stop_clock("2026-11-16 09:00:00+00")
    return queue


def test_without_a_schedule_it_is_null(queue: Queue) -> None:
    assert queue.call("next_schedule_due") is None


def test_it_is_the_time_until_the_first_tick_of_any(queue: Queue) -> None:
    queue.schedule("a", "30 * * * *")
    queue.schedule("b", "10 * * * *")

    assert queue.call("next_schedule_due") == timedelta(minutes=10)


def test_a_due_tick_is_zero_or_less(queue: Queue) -> None:
    queue.schedule("a", "30 * * * *")
    queue.later("40 minutes")

    assert queue.call("next_schedule_due") == timedelta(minutes=-10)


def test_a_paused_schedule_does_not_count(queue: Queue) -> None:
    queue.schedule("a", "30 * * * *")
    queue.call("pause_schedule", "a")

    assert queue.call("next_schedule_due") is None


def test_for_a_failed_schedule_it_is_the_time_until_its_next_try(queue: Queue) -> None:
    queue.schedule("a", "30 * * * *")
    queue.conn.execute("UPDATE messages.schedule SET retry_at = messages.now() + interval '42 minutes'")

    assert queue.call("next_schedule_due") == timedelta(minutes=42)


# messages.run_schedule: a schedule publishes its message now, by hand.


def run_now(queue: Queue, name: Any = "s") -> Row:
    return queue.row("SELECT * FROM messages.run_schedule(%s)", [name])


def test_it_publishes_the_message_and_records_the_user(queue: Queue) -> None:
    queue.schedule("s", "0 12 * * *", payload={"n": 1}, jitter="1 hour")

    published, what = run_now(queue)

    assert what == "published"
    message = queue.message(published)
    assert (message.payload, message.headers["schedule"]) == ({"n": 1}, "s")
    assert message.available_at - queue.call("now") < queue.value("SELECT interval '1 ms'")
    (run,) = queue.runs()
    assert (run.outcome, run.message_id, run.run_by) == (
        "published",
        published,
        queue.value("SELECT session_user::text"),
    )


def test_the_ticks_of_the_schedule_are_not_changed(queue: Queue) -> None:
    queue.schedule("s", "0 10 * * *")
    before = queue.scheduled().next_tick

    run_now(queue)

    assert (queue.scheduled().next_tick, queue.scheduled().last_tick) == (before, None)
    queue.later("1 hour")
    assert queue.call("fire_schedules") == 1


def test_at_the_exact_time_of_a_tick_both_are_published(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *")
    queue.later("1 hour")

    run_now(queue)

    assert queue.call("fire_schedules") == 1
    assert len(queue.ids()) == len(queue.runs()) == 2


def test_a_paused_schedule_runs_too(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *")
    queue.call("pause_schedule", "s")

    assert run_now(queue).id in queue.ids()


def test_while_its_key_waits_it_publishes_nothing_and_returns_the_waiting_message(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *", key="k")
    published, _ = run_now(queue)

    assert tuple(run_now(queue)) == (published, "ignored")
    assert [run.outcome for run in queue.runs()] == ["published", "ignored"]


@pytest.mark.parametrize("name", ["nope", None])
def test_an_unknown_schedule_is_an_error_with_the_fix(queue: Queue, name: Any) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="there is no schedule") as caught:
        run_now(queue, name)

    assert caught.value.diag.message_hint == "see messages.schedule for those there are"


# schedule_changed: The triggers of messages.schedule: check a change, compute when the schedule is due, and notify the
# daemons.


def change(queue: Queue, assignment: str) -> None:
    queue.conn.execute(f"UPDATE messages.schedule SET {assignment}".encode())


NAME = "use 1 to 100 of A-Z a-z 0-9 . _ : - with a letter or digit first"
TOPIC = "use 1 to 200 of A-Z a-z 0-9 . _ : - with a letter or digit first"
PRINTABLE = "use 1 to 200 printable characters, or NULL for none"


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"name": "a b"}, '"a b" is no name of a schedule', NAME),
    ({"name": ""}, '"" is no name of a schedule', NAME),
    ({"name": "x" * 101}, "is no name of a schedule", NAME),
    ({"topic": "a b"}, 'topic of schedule s is "a b"', TOPIC),
    ({"topic": "t.dlq"}, 'topic of schedule s is "t.dlq"', "use a name that does not end with .dlq"),
    ({"topic": None}, 'topic of schedule s is "NULL"', TOPIC),
    ({"channel": "a\tb"}, "channel of schedule s is", PRINTABLE),
    ({"key": ""}, 'key of schedule s is ""', PRINTABLE),
    ({"priority": 10}, "priority of schedule s is 10", r"use 0 \(first\) to 9"),
    ({"max_attempts": -1}, "max_attempts of schedule s is -1", r"use 0 \(no limit\) or more"),
    ({"timeout": "0 s"}, "schedule s: timeout is 00:00:00", "use an interval from 1 ms to 30 days"),
    ({"backoff": '{"base": "1 s"}'}, "schedule s: backoff: kind is missing", "use none, constant"),
    ({"retention": "1 minute"}, "schedule s: retention is 00:01:00", "use an interval from 1 hour"),
    ({"payload": None}, "payload of schedule s is", "store it elsewhere"),
    ({"headers": "[1]"}, r"headers of schedule s are \[1\]", "use an object of up to 64 kB"),
    ({"jitter": "-1 s"}, "jitter of schedule s is -00:00:01", "use an interval from 0 to 1 day"),
    ({"jitter": "25 h"}, "jitter of schedule s is 25:00:00", "use an interval from 0 to 1 day"),
    ({"missed": "never"}, 'missed of schedule s is "never"', "use skip, once or all"),
    ({"missed_limit": 0}, "missed_limit of schedule s is 0", "use 1 to 1000"),
    ({"missed_limit": 1001}, "missed_limit of schedule s is 1001", "use 1 to 1000"),
    ({"while_paused": "wait"}, 'while_paused of schedule s is "wait"', "use publish or skip"),
    ({"while_paused": None}, 'while_paused of schedule s is "NULL"', "use publish or skip"),
    ({"cron": "0 25 * * *"}, 'cron of schedule s: hour is "25"', r"use \* or 0 to 23"),
    ({"cron": "60 0 3 * * *"}, 'cron of schedule s: second is "60"', r"use \* or 0 to 59"),
    ({"cron": "0 0 3 ? * mon"}, r'cron of schedule s: day of month is "\?"', r"use \* or 1 to 31"),
    ({"cron": "0 0 0 30 2 *"}, "a day that never comes", "use a day that the month has"),
    ({"cron": "0 0 30 2 *"}, "a day that never comes", "use a day that the month has"),
    ({"cron": ""}, 'cron of schedule s: expression is ""', "use five fields"),
    ({"time_zone": "berlin"}, 'time_zone of schedule s is "berlin"', "use an IANA name, like Europe/Berlin"),
    ({"time_zone": "EUROPE/BERLIN"}, 'time_zone of schedule s is "EUROPE/BERLIN"', "like Europe/Berlin"),
    ({"time_zone": "UTC+3"}, 'time_zone of schedule s is "UTC\\+3"', "or Etc/GMT-3"),
    ({"time_zone": "CEST"}, 'time_zone of schedule s is "CEST"', "like UTC or Europe/Berlin"),
]


def test_a_bad_value_is_refused_with_setting_value_and_fix(queue: Queue) -> None:
    for columns, problem, fix in BAD:
        with pytest.raises(errors.InvalidParameterValue, match=problem) as caught:
            queue.schedule(**columns)
        assert caught.match(fix)

    queue.schedule()
    with pytest.raises(errors.InvalidParameterValue, match='cron of schedule s: minute is "x"'):
        change(queue, "cron = 'x * * * *'")


def test_the_next_tick_of_a_new_schedule_is_computed(queue: Queue) -> None:
    queue.schedule("s", "0 12 * * *", time_zone="America/New_York")

    assert queue.scheduled().next_tick.isoformat() == "2026-11-16T17:00:00+00:00"


def test_a_changed_expression_or_time_zone_moves_the_next_tick(queue: Queue) -> None:
    queue.schedule("s", "0 12 * * *")

    change(queue, "cron = '30 12 * * *'")
    by_cron = queue.scheduled().next_tick
    change(queue, "time_zone = 'Europe/Berlin'")
    by_zone = queue.scheduled().next_tick

    assert (by_cron.hour, by_cron.minute, by_zone.hour, by_zone.minute) == (12, 30, 11, 30)


def test_other_changes_leave_the_next_tick_even_if_it_is_due(queue: Queue) -> None:
    queue.schedule("s", "0 12 * * *")
    queue.later("1 day")

    change(queue, "payload = '7', cron = cron")

    assert queue.scheduled().next_tick.day == 16


def test_past_ticks_are_fired_if_the_next_tick_is_set_back_by_hand(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *", missed="all")

    change(queue, "next_tick = '2026-11-16 05:00+00'")

    assert queue.call("fire_schedules") == 5
    assert [run.tick.hour for run in queue.runs()] == [5, 6, 7, 8, 9]


def test_a_change_that_may_make_a_tick_due_sooner_notifies_the_daemons(
    queue: Queue, listen: Callable[..., Listener]
) -> None:
    listener = listen("schedule_changed")

    queue.schedule("s", "0 12 * * *")
    added = listener.received()
    change(queue, "cron = '0 11 * * *'")
    sooner = listener.received()
    queue.call("pause_schedule", "s")
    paused = listener.received()
    queue.call("resume_schedule", "s")
    resumed = listener.received()

    assert (added, sooner, paused, resumed) == ([""], [""], [], [""])


def test_firing_a_tick_and_changes_without_a_new_time_notify_no_daemon(
    queue: Queue, listen: Callable[..., Listener]
) -> None:
    queue.schedule("s", "0 12 * * *")
    queue.later("4 hours")
    listener = listen("schedule_changed")

    queue.call("fire_schedules")
    change(queue, "payload = '7'")
    change(queue, "cron = '0 13 * * *'")

    assert listener.received() == []


def test_the_caller_of_a_change_is_recorded(queue: Queue) -> None:
    queue.schedule()

    assert queue.scheduled().created_by == queue.value("SELECT session_user::text")
