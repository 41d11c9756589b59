"""Schedules that fire: what is published, once for each tick, also after a pause of the daemons."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from psycopg import errors

from tests.server.postgres import Database
from tests.sql.queue import Background, Listener, Queue, Row

# messages.fire_schedule: one schedule publishes its due ticks, and missed ones according to its policy.

NINE = "2026-11-16 09:00:00+00"  # a Monday


@pytest.fixture
def queue(queue: Queue) -> Queue:
    """The clock is stopped at nine o'clock."""
    queue.stop_clock(NINE)
    return queue


def fire(queue: Queue, limit: int = 100) -> int:
    return int(queue.call("fire_schedules", limit))


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
    queue: Queue, other: Queue, background: Background
) -> None:
    queue.schedule("s", "0 * * * *")
    queue.later("1 hour")
    fire_unlocked = "SELECT messages.fire_schedule(s, s.next_tick) AS did FROM messages.schedule AS s"

    with queue.conn.transaction():
        assert queue.value(fire_unlocked) == 1
        second = background.start_blocked(other, other.value, fire_unlocked)

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


# A paused topic


def left_out(queue: Queue) -> list[tuple[str, str, int | None]]:
    return [(run.tick.strftime("%H:%M"), run.outcome, run.message_id) for run in queue.runs()]


@pytest.mark.parametrize("paused", ["t", "*"])
def test_while_its_topic_or_all_are_paused_a_schedule_that_skips_publishes_nothing_and_records_that(
    queue: Queue, paused: str
) -> None:
    queue.schedule("s", "0 * * * *", while_paused="skip")
    queue.call("pause", paused)
    queue.later("1 hour")

    assert fire(queue) == 0

    assert (queue.ids(), left_out(queue)) == ([], [("10:00", "paused", None)])
    schedule = queue.scheduled()
    assert (schedule.last_tick, schedule.last_fired_at, schedule.next_tick.hour) == (None, None, 11)


def test_a_tick_after_the_end_of_the_pause_publishes_and_the_ones_before_are_not_made_up_for(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *", while_paused="skip", missed="all")
    queue.call("pause", "t", resume_in="90 minutes")
    for _ in range(2):
        queue.later("1 hour")
        fire(queue)

    assert [row[:2] for row in left_out(queue)] == [("10:00", "paused"), ("11:00", "published")]


def test_by_default_a_schedule_publishes_while_its_topic_is_paused(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *")
    queue.call("pause", "t")
    queue.later("1 hour")

    assert fire(queue) == 1
    assert [run.outcome for run in queue.runs()] == ["published"]


def test_an_open_breaker_or_the_pause_of_another_topic_skips_no_tick(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *", while_paused="skip")
    queue.policy("t", breaker='{"pause": "1m"}')
    queue.conn.execute(
        """INSERT INTO messages.breaker (topic, position, changed_at, probe_at, reason)
           VALUES ('t', 'open', messages.now(), messages.now() + interval '1 day', '9 of 10 failed')"""
    )
    queue.call("pause", "other")
    queue.later("1 hour")

    assert fire(queue) == 1
    assert queue.value("SELECT state FROM messages.topic_state(ARRAY['t'])") == "breaker"


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        ("skip", [("12:00", "paused", None)]),
        ("once", [("12:00", "paused", None)]),
        ("all", [("11:00", "paused", None), ("12:00", "paused", None)]),
    ],
)
def test_missed_ticks_of_a_paused_topic_are_left_out_by_each_policy(
    queue: Queue, missed: str, expected: list[tuple[str, str, None]]
) -> None:
    queue.schedule("s", "0 * * * *", while_paused="skip", missed=missed, missed_limit=2)
    queue.call("pause", "t")
    queue.later("3 hours 10 minutes")

    assert fire(queue) == 0

    assert left_out(queue) == expected
    assert queue.runs()[0].missed_from.hour == 10


def test_a_tick_that_failed_and_whose_topic_is_paused_then_is_left_out(queue: Queue) -> None:
    queue.policy("t", max_depth=1, on_full="error")
    queue.publish("t")
    queue.schedule("s", "0 * * * *", while_paused="skip")
    queue.later("1 hour")
    fire(queue)
    queue.call("pause", "t")
    queue.later("2 s")

    assert fire(queue) == 0
    assert left_out(queue) == [("10:00", "paused", None)]
    assert (queue.scheduled().last_error, queue.scheduled().failures) == (None, 0)


def test_a_run_by_hand_publishes_while_the_topic_is_paused(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *", while_paused="skip")
    queue.call("pause", "t")

    ran = queue.row("SELECT * FROM messages.run_schedule('s')")

    assert (ran.outcome, queue.ids()) == ("published", [ran.id])


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


# messages.fire_schedules: all schedules publish their due ticks; concurrent calls never fire one twice, and a failing
# schedule harms no other.


def test_the_tick_of_the_maintenance_fires_too(queue: Queue) -> None:
    queue.schedule("a", "0 * * * *")
    queue.later("1 hour")

    (did,) = [row.count for row in queue.rows("SELECT * FROM messages.tick('cron')") if row.task == "fire_schedules"]

    assert did == len(queue.ids()) == 1


def test_it_notifies_sleepers_as_every_publish_does(queue: Queue, listen: Callable[..., Listener]) -> None:
    listener = listen("new_message")
    queue.arm()
    queue.schedule("a", "0 * * * *")
    queue.later("1 hour")

    fire(queue)

    assert listener.received() == [str(queue.ids()[0])]


def test_one_call_is_bounded_and_fires_the_longest_due_first(queue: Queue) -> None:
    for minute in (30, 10, 20):
        queue.schedule(f"m{minute}", f"{minute} * * * *")
    queue.later("1 hour")

    assert fire(queue, 2) == 2
    assert [len(queue.runs(f"m{minute}")) for minute in (10, 20, 30)] == [1, 1, 0]
    assert fire(queue, 2) == 1


def test_after_a_thousand_messages_a_call_ends_and_the_next_continues(queue: Queue) -> None:
    for name in "abc":
        queue.schedule(name, "1 second", missed="all", missed_limit=600)
    queue.later("600 s")

    assert [fire(queue), fire(queue)] == [1200, 600]


# Concurrency


def test_a_schedule_that_another_session_is_firing_is_skipped_not_waited_for(queue: Queue, other: Queue) -> None:
    queue.schedule("a", "0 * * * *")
    queue.schedule("b", "0 * * * *")
    queue.stop_clock("2026-11-16 10:00+00")
    other.stop_clock("2026-11-16 10:00+00")

    with queue.conn.transaction():
        assert fire(queue, 1) == 1
        assert fire(other) == 1

    assert fire(other) == fire(queue) == 0
    assert len(queue.ids()) == 2


def test_a_session_that_dies_before_the_commit_leaves_the_tick_to_the_next(queue: Queue, other: Queue) -> None:
    queue.schedule("a", "0 * * * *")
    queue.stop_clock("2026-11-16 10:00+00")
    other.stop_clock("2026-11-16 10:00+00")

    with queue.conn.transaction(force_rollback=True):
        assert fire(queue) == 1

    assert queue.ids() == []
    assert fire(other) == 1


def test_eight_concurrent_sessions_fire_every_tick_exactly_once(own_database: Database) -> None:
    queue = Queue(own_database.connect())
    queue.stop_clock(NINE)
    # A session that is delayed for two seconds would otherwise count as a failure of the others.
    queue.conn.execute("ALTER FUNCTION messages.fire_schedules SET lock_timeout = '60s'")
    for n in range(5):
        queue.schedule(f"s{n}", "1 second", missed="all")
    ready = Barrier(8)

    def fire_for_a_minute() -> None:
        mine = Queue(own_database.connect())
        ready.wait()
        for second in range(1, 61):
            mine.stop_clock(f"2026-11-16 09:00:{second:02}+00" if second < 60 else "2026-11-16 09:01:00+00")
            fire(mine)

    with ThreadPoolExecutor(8) as pool:
        for each in [pool.submit(fire_for_a_minute) for _ in range(8)]:
            each.result()

    for n in range(5):
        assert [run.tick.timestamp() % 60 for run in queue.runs(f"s{n}")] == [*range(1, 60), 0]
    published = (
        "SELECT count(*) AS a, count(DISTINCT (headers ->> 'schedule', headers ->> 'tick')) AS b FROM messages.message"
    )
    assert tuple(queue.row(published)) == (300, 300)


def test_a_snapshot_from_before_another_session_fired_publishes_nothing(queue: Queue, other: Queue) -> None:
    queue.schedule("a", "0 * * * *")
    for each in (queue, other):
        each.stop_clock("2026-11-16 10:00+00")

    with other.conn.transaction(force_rollback=True):
        other.conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.ids()
        assert fire(queue) == 1
        with pytest.raises(errors.SerializationFailure):
            fire(other)

    assert len(queue.ids()) == 1


# Failures


def break_zone(queue: Queue, name: str) -> None:
    """Give a schedule a time zone that the server does not know."""
    with queue.conn.transaction():
        queue.conn.execute("SET LOCAL session_replication_role = replica")
        queue.conn.execute("UPDATE messages.schedule SET time_zone = 'Mars/Base' WHERE name = %s", [name])


def test_a_failing_schedule_harms_no_other_and_records_why(queue: Queue) -> None:
    notices: list[str | None] = []
    queue.conn.add_notice_handler(lambda d: notices.append(d.message_primary))
    for name in "abc":
        queue.schedule(name, "0 * * * *")
    break_zone(queue, "b")
    queue.later("1 hour")

    assert fire(queue) == 2

    broken = queue.scheduled("b")
    assert (broken.last_error, broken.failures) == ('time zone "Mars/Base" not recognized', 1)
    assert broken.failed_at == queue.call("now")
    assert notices == ['schedule b failed: time zone "Mars/Base" not recognized']
    assert queue.runs("b") == []


def test_a_failing_schedule_is_retried_with_growing_delays(queue: Queue) -> None:
    queue.schedule("a", "0 * * * *")
    break_zone(queue, "a")
    queue.later("1 hour")
    waits = []

    for _ in range(10):
        fire(queue)
        waits.append((queue.scheduled("a").retry_at - queue.call("now")).total_seconds())
        fire(queue)  # too early: nothing happens
        queue.later(f"{waits[-1]} s")

    assert waits == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


def test_a_topic_that_refused_a_message_gets_it_once_it_is_fixed(queue: Queue) -> None:
    queue.schedule("a", "0 * * * *")
    queue.conn.execute(
        """
        CREATE FUNCTION pg_temp.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'topic t is full' USING HINT = 'work it off'; END $$;
        CREATE TRIGGER refuse BEFORE INSERT ON messages.message FOR EACH ROW EXECUTE FUNCTION pg_temp.refuse();
        """
    )
    queue.later("1 hour")
    fire(queue)
    failed = queue.scheduled("a")
    queue.conn.execute("DROP TRIGGER refuse ON messages.message")

    queue.later("2 s")

    assert failed.last_error == "topic t is full: work it off"
    assert fire(queue) == 1
    fixed = queue.scheduled("a")
    assert (fixed.last_error, fixed.failed_at, fixed.failures, fixed.retry_at) == (None, None, 0, None)
    assert [run.tick.hour for run in queue.runs("a")] == [10]


def test_a_schedule_that_was_fixed_by_hand_is_tried_at_once(queue: Queue) -> None:
    queue.schedule("a", "0 * * * *")
    break_zone(queue, "a")
    queue.later("1 hour")
    fire(queue)

    queue.conn.execute("UPDATE messages.schedule SET time_zone = 'Europe/Berlin'")

    assert queue.scheduled("a").retry_at is None
    assert queue.scheduled("a").next_tick - queue.call("now") == timedelta(hours=1)


def test_many_failing_schedules_do_not_delay_the_others(queue: Queue) -> None:
    for n in range(5):
        queue.schedule(f"bad{n}", "10 * * * *")
        break_zone(queue, f"bad{n}")
    queue.schedule("good", "30 * * * *")
    queue.later("1 hour")

    assert [fire(queue, 5), fire(queue, 5)] == [0, 1]


def test_a_schedule_whose_topic_a_long_transaction_locks_is_waited_for_briefly(own_database: Database) -> None:
    queue, other = (Queue(own_database.connect()) for _ in range(2))
    queue.conn.execute("ALTER FUNCTION messages.fire_schedules SET lock_timeout = '50ms'")
    queue.policy("limited", max_depth=100)
    queue.stop_clock(NINE)
    queue.schedule("a", "10 * * * *", topic="limited")
    queue.schedule("b", "20 * * * *", topic="free")
    queue.later("1 hour")

    with other.conn.transaction():
        other.publish("limited")
        assert fire(queue) == 1
    queue.later("2 s")

    assert queue.scheduled("a").last_error == "canceling statement due to lock timeout"
    assert fire(queue) == 1


def test_no_lock_is_waited_for_longer_than_two_seconds(queue: Queue) -> None:
    settings = queue.value("SELECT proconfig FROM pg_proc WHERE oid = 'messages.fire_schedules'::regproc")

    assert "lock_timeout=2s" in settings


def test_a_tick_publishes_what_the_schedule_has_instead_of_the_topic(queue: Queue) -> None:
    own = {"max_attempts": 3, "timeout": "30 s", "backoff": '{"kind": "none"}', "retention": "2 h"}
    queue.schedule("s", **own)
    queue.later("1 minute")

    assert fire(queue) == 1

    (message,) = map(queue.message, queue.ids())
    assert (message.max_attempts, message.backoff) == (3, {"kind": "none"})
    assert (message.timeout, message.retention) == (timedelta(seconds=30), timedelta(hours=2))
