"""messages.fire_schedule: one schedule publishes its due ticks, and missed ones according to its policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import errors

from tests.sql.queue import Background, Queue, Row

NINE = "2026-11-16 09:00:00+00"  # a Monday


@pytest.fixture
def queue(queue: Queue) -> Queue:
    """The clock is stopped at nine o'clock."""
    queue.stop_clock(NINE)
    return queue


def fire(queue: Queue) -> int:
    return int(queue.call("fire_schedules"))


def ticks(rows: list[Row]) -> list[str]:
    return [row.tick.strftime("%H:%M:%S") for row in rows]


def test_a_tick_publishes_one_message_and_leaves_a_row_that_names_it(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *", topic="report", payload={"n": 1})
    queue.later("1 hour")

    assert fire(queue) == 1

    (run,) = queue.runs()
    assert (ticks([run]), run.outcome, run.missed_from, run.run_by) == (["10:00:00"], "published", None, None)
    message = queue.message(run.message_id)
    assert (message.topic, message.payload) == ("report", {"n": 1})


def test_before_its_time_it_publishes_nothing(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *")
    queue.later("59 minutes 59 s")

    assert fire(queue) == 0
    assert queue.ids() == []


def test_after_firing_it_waits_for_the_next_tick(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *")
    queue.later("1 hour")
    fire(queue)

    assert fire(queue) == 0
    schedule = queue.scheduled()
    assert ticks(queue.rows("SELECT last_tick AS tick, 0 FROM messages.schedule")) == ["10:00:00"]
    assert schedule.next_tick.hour == 11
    assert schedule.last_message_id == queue.ids()[0]


def test_the_message_has_all_columns_of_the_schedule(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *", channel="c", key="k", priority=2, headers={"trace": "x", "tick": "no"})
    queue.later("1 hour")

    fire(queue)

    (message,) = queue.rows("SELECT * FROM messages.message")
    assert (message.channel, message.key, message.priority, message.payload) == ("c", "k", 2, {})
    assert message.headers == {"trace": "x", "schedule": "s", "tick": "2026-11-16T10:00:00.000000Z"}


def test_a_tick_that_has_a_row_already_publishes_nothing(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *")
    queue.later("1 hour")
    fire(queue)

    queue.conn.execute("UPDATE messages.schedule SET next_tick = '2026-11-16 10:00+00'")

    assert fire(queue) == 0
    assert len(queue.ids()) == len(queue.runs()) == 1
    assert queue.scheduled().next_tick.hour == 11


def test_a_clock_that_goes_back_fires_nothing_twice(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *")
    queue.later("1 hour")
    fire(queue)

    queue.later("-30 minutes")
    fire(queue)
    queue.later("30 minutes")
    fire(queue)

    assert len(queue.ids()) == 1


def test_without_any_lock_the_primary_key_alone_prevents_a_second_publish_of_a_tick(
    queue: Queue, other: Queue, background: Background, eventually: Callable[..., Any]
) -> None:
    queue.schedule("s", "0 * * * *")
    queue.later("1 hour")
    fire_unlocked = "SELECT messages.fire_schedule(s, s.next_tick) AS did FROM messages.schedule AS s"

    with queue.conn.transaction():
        assert queue.value(fire_unlocked) == 1
        second = background.start(other.value, fire_unlocked)
        eventually(lambda: background.is_blocked(other))

    with pytest.raises(errors.UniqueViolation, match="schedule_run_pkey"):
        second.result()
    assert len(queue.ids()) == 1


# Missed ticks


def test_skip_omits_late_ticks_and_records_that(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *", missed="skip")
    queue.later("3 hours 10 minutes")

    assert fire(queue) == 0

    (run,) = queue.runs()
    assert (ticks([run]), run.outcome, run.message_id) == (["12:00:00"], "missed", None)
    assert run.missed_from.hour == 10
    assert (queue.scheduled().last_tick, queue.scheduled().next_tick.hour) == (None, 13)


def test_skip_fires_a_tick_that_is_as_late_as_pg_cron_alone_may_be(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *", missed="skip")
    queue.later("3 hours 1 minute 59 s")

    assert fire(queue) == 1
    assert [(run.outcome, run.missed_from.hour) for run in queue.runs()] == [("published", 10)]


def test_once_publishes_only_the_newest_of_missed_ticks(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *", missed="once")
    queue.later("10 days 3 hours 10 minutes")

    assert fire(queue) == 1

    (run,) = queue.runs()
    assert (run.tick.day, run.tick.hour, run.outcome, run.missed_from.day) == (26, 12, "published", 16)
    assert queue.scheduled().next_tick.hour == 13


def test_all_publishes_each_missed_tick_in_order(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *", missed="all")
    queue.later("3 hours 10 minutes")

    assert fire(queue) == 3

    assert ticks(queue.runs()) == ["10:00:00", "11:00:00", "12:00:00"]
    assert [queue.message(run.message_id).headers["tick"][11:13] for run in queue.runs()] == ["10", "11", "12"]
    assert sorted(queue.ids()) == [run.message_id for run in queue.runs()]


def test_all_publishes_the_newest_missed_ticks_up_to_its_limit(queue: Queue) -> None:
    queue.schedule("s", "* * * * *", missed="all", missed_limit=2)
    queue.later("400 days")

    assert fire(queue) == 2

    assert ticks(queue.runs()) == ["08:59:00", "09:00:00"]
    assert [run.missed_from is not None for run in queue.runs()] == [True, False]


def test_a_schedule_of_seconds_that_is_fired_each_minute_publishes_one_or_all_ticks(queue: Queue) -> None:
    queue.schedule("one", "10 seconds")
    queue.schedule("each", "10 seconds", missed="all")
    queue.later("1 minute")

    fire(queue)

    assert (len(queue.runs("one")), len(queue.runs("each"))) == (1, 6)


# Refusals of the topic


def test_while_the_key_of_the_last_message_waits_no_other_is_published(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *", key="only-one")
    queue.later("1 hour")
    fire(queue)
    (waits,) = queue.ids()
    queue.later("1 hour")

    assert fire(queue) == 0

    assert [(run.outcome, run.message_id) for run in queue.runs()] == [("published", waits), ("ignored", waits)]
    assert queue.scheduled().last_error is None


def test_a_run_records_a_full_topic_that_drops(queue: Queue) -> None:
    queue.policy("t", max_depth=1, on_full="drop")
    queue.publish("t")
    queue.schedule("s", "0 * * * *")
    queue.later("1 hour")

    assert fire(queue) == 0
    assert [(run.outcome, run.message_id) for run in queue.runs()] == [("dropped", None)]


def test_a_full_topic_that_refuses_gets_its_message_when_there_is_room(queue: Queue) -> None:
    queue.policy("t", max_depth=1, on_full="error")
    full = queue.publish("t")
    queue.schedule("s", "0 * * * *")
    queue.later("1 hour")
    fire(queue)
    refused = queue.scheduled()
    queue.call("cancel", [full])

    queue.later("2 s")

    assert "full" in refused.last_error
    assert fire(queue) == 1
    assert queue.scheduled().last_error is None


def test_a_topic_with_room_for_some_gets_these_and_the_others_later(queue: Queue) -> None:
    queue.policy("t", max_depth=3, on_full="error")
    queue.schedule("s", "0 * * * *", missed="all")
    queue.later("5 hours")

    first = [fire(queue), fire(queue)]
    full = queue.scheduled()
    queue.call("cancel", queue.ids()[:1])
    queue.later("2 s")
    second = [fire(queue), fire(queue)]

    assert (first, second) == ([3, 0], [1, 0])
    assert (full.failures, full.next_tick.hour) == (1, 13)
    assert [run.tick.hour for run in queue.runs()] == [10, 11, 12, 13]


def test_a_message_of_a_topic_with_subscribers_is_copied_to_them(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('t', 'mail'), ('t', 'log')")
    queue.schedule("s", "0 * * * *", key="k")
    for _ in range(2):
        queue.later("1 hour")
        fire(queue)

    assert sorted(row.topic for row in queue.rows("SELECT topic FROM messages.message")) == ["log", "mail"]


# History


def test_the_last_thousand_runs_are_kept(queue: Queue) -> None:
    queue.schedule("s", "1 second", missed="all", missed_limit=1000)
    queue.later("1000 s")
    fire(queue)
    first = queue.runs()[0].tick

    queue.later("1 s")
    fire(queue)

    assert len(queue.runs()) == 1000
    assert queue.runs()[0].tick > first
    assert len(queue.ids()) == 1001


def test_the_runs_of_a_schedule_are_deleted_and_renamed_with_it(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *")
    queue.later("1 hour")
    fire(queue)

    queue.conn.execute("UPDATE messages.schedule SET name = 'renamed'")
    renamed = queue.runs("renamed")
    queue.conn.execute("DELETE FROM messages.schedule")

    assert len(renamed) == 1
    assert queue.runs("renamed") == []
    assert len(queue.ids()) == 1
