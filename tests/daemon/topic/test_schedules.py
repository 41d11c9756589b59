"""Schedules over a fleet: each tick is published on time and exactly once, by any daemon or pg_cron."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from threading import Event, Thread

import pytest

from tests.daemon.process import AT_ONCE_S, Daemon, Journal, now
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue, Row

Start = Callable[..., Daemon]
SECOND = timedelta(seconds=1)
# A tick of the maintenance would not help: schedules have their own timer.
ALONE = {"maintenance_interval": "1h", "poll_interval": "1h"}


def lateness_s(runs: list[Row]) -> list[float]:
    return [(run.fired_at - run.tick).total_seconds() for run in runs]


def assert_exactly_once(queue: Queue, name: str) -> None:
    """Every second since the first run has one run, and each run one message, which was processed once."""
    runs = queue.runs(name)
    ticks = [run.tick for run in runs]
    assert ticks == [ticks[0] + n * SECOND for n in range(len(ticks))]
    assert {run.outcome for run in runs} == {"published"}
    published = "SELECT id, headers ->> 'tick' AS tick FROM messages.{} WHERE headers ->> 'schedule' = '" + name + "'"
    eventually(lambda: queue.rows(published.format("message")) == [])
    worked = queue.rows(published.format("message_archive"))
    assert sorted(row.id for row in worked) == sorted(run.message_id for run in runs)
    assert len({row.tick for row in worked}) == len(runs)


def stop_schedules(queue: Queue) -> None:
    queue.rows("SELECT messages.pause_schedule(name) FROM messages.schedule")


@pytest.mark.long
def test_a_schedule_fires_at_its_time_by_a_timer_not_by_the_next_tick(start: Start, queue: Queue) -> None:
    start({"t": "work:echo"}, **ALONE)

    queue.schedule("s", "1 second")

    eventually(lambda: len(queue.runs()) >= 4)
    assert all(0 <= late < AT_ONCE_S for late in lateness_s(queue.runs()))


def test_a_daemon_that_starts_publishes_missed_ticks_as_the_policy_says(start: Start, queue: Queue) -> None:
    for missed in ("once", "all"):
        queue.schedule(missed, "@hourly", missed=missed)
    queue.conn.execute("UPDATE messages.schedule SET next_tick = next_tick - interval '4 hours'")
    hour = queue.value("SELECT date_trunc('hour', clock_timestamp())")

    start({"t": "work:echo"}, **ALONE)

    eventually(lambda: len(queue.runs("all")) >= 4 and queue.runs("once"))
    all_of_them, once = ([run.tick for run in queue.runs(name)] for name in ("all", "once"))
    # The next hour may have just begun.
    begun = queue.value("SELECT date_trunc('hour', clock_timestamp())") - hour
    assert all_of_them[:4] == [hour - timedelta(hours=n) for n in (3, 2, 1, 0)]
    assert once in ([hour], [hour + begun], [hour, hour + begun])


@pytest.fixture
def cron_in_thread(database: Database) -> Iterator[None]:
    """Run ticks continuously, as pg_cron's job does."""
    over = Event()
    conn = database.connect()

    def tick() -> None:
        while not over.wait(0.01):
            conn.execute("SELECT messages.tick('cron')")

    thread = Thread(target=tick)
    thread.start()
    yield
    over.set()
    thread.join()


@pytest.mark.long
def test_three_daemons_and_pg_crons_job_together_fire_every_tick_exactly_once(
    start: Start, queue: Queue, cron_in_thread: None
) -> None:
    for _ in range(3):
        start({"t": "work:echo"}, maintenance_interval="0.2s")

    for name in "abc":
        queue.schedule(name, "1 second", missed="all")

    eventually(lambda: all(len(queue.runs(name)) >= 6 for name in "abc"), within_s=60)
    stop_schedules(queue)
    for name in "abc":
        assert_exactly_once(queue, name)


@pytest.mark.long
def test_no_tick_is_lost_or_fired_twice_while_daemons_are_killed_and_started(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.policy("*", max_attempts=0, lock_duration="1 s", backoff={"kind": "none"})
    queue.schedule("s", "1 second", missed="all")
    daemons = [start({"t": "work:echo"}, maintenance_interval="0.2s") for _ in range(2)]

    for daemon in daemons:
        runs = len(queue.runs())
        eventually(lambda runs=runs: len(queue.runs()) >= runs + 2)
        daemon.kill()
        start({"t": "work:echo"}, maintenance_interval="0.2s")
    eventually(lambda: len(queue.runs()) >= 7)

    stop_schedules(queue)
    assert_exactly_once(queue, "s")


@pytest.mark.long
def test_a_schedule_that_fails_neither_delays_the_others_nor_keeps_the_daemon_busy(start: Start, queue: Queue) -> None:
    queue.schedule("bad", "1 second")
    queue.schedule("good", "1 second")
    with queue.conn.transaction():
        queue.conn.execute("SET LOCAL session_replication_role = replica")
        queue.conn.execute("UPDATE messages.schedule SET time_zone = 'Mars/Base', cron = '@hourly' WHERE name = 'bad'")
    daemon = start({"t": "work:echo"}, **ALONE)
    eventually(lambda: queue.scheduled("bad").failures >= 1)
    failures, began, used = queue.scheduled("bad").failures, now(), daemon.cpu_s()

    eventually(lambda: queue.scheduled("bad").failures > failures)
    eventually(lambda: len(queue.runs("good")) >= 4)

    assert (daemon.cpu_s() - used) / (now() - began) < 0.25
    assert all(late < AT_ONCE_S for late in lateness_s(queue.runs("good")[1:]))
