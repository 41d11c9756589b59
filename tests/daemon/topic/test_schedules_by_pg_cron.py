"""Schedules that pg_cron fires: with no daemon alive, and together with daemons.

Both wait for the same turn of a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from pgrouse.database.install import pg_cron as cron
from tests.cron.minute import knows_seconds, tick_each_second, until_its_middle
from tests.daemon.process import Fleet
from tests.daemon.topic.test_schedules import assert_exactly_once, lateness_s, stop_schedules
from tests.server.deadline import eventually
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue

# Also in the fixture: that of a module is made before the mark is looked at.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240), pytest.mark.every_server, pytest.mark.pg_cron]


@dataclass
class Minute:
    """Two queues that pg_cron maintains, after it has had its turn: one without a daemon, one with two of them."""

    alone: Queue
    together: Queue


@pytest.fixture(scope="module")
def minute(server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minute]:
    if server.pg_cron is None:
        pytest.skip("this server has no pg_cron")
    with ExitStack() as ends:
        alone, together = (ends.enter_context(server.new_database(template=server.migrated)) for _ in range(2))
        jobs = ends.enter_context(server.admin(server.cron_database))
        queues = Minute(maintained(alone, jobs, ends), maintained(together, jobs, ends))
        start_two_daemons(together, tmp_path_factory.mktemp("minute"), ends)
        queues.alone.schedule("s", "* * * * *")
        if knows_seconds(server):
            begin_with_this_minute(queues.alone)
            tick_each_second(jobs)
        queues.together.schedule("s", "1 second", missed="all")
        eventually(queues.alone.runs, within_s=130)
        stop_schedules(queues.alone)
        by_cron = "SELECT FROM messages.tick_mark WHERE caller = 'cron' AND task = 'fire_schedules'"
        eventually(lambda: queues.together.rows(by_cron), within_s=130)
        yield queues


def maintained(database: Database, jobs: psycopg.Connection, ends: ExitStack) -> Queue:
    """Let pg_cron maintain the queue of this database."""
    launchers = "SELECT FROM pg_stat_activity WHERE backend_type = 'pg_cron launcher'"
    eventually(lambda: jobs.execute(launchers).rowcount)
    queue = Queue(database.connect())
    cron.install(queue.conn)
    ends.callback(cron.remove, queue.conn)
    return queue


def begin_with_this_minute(queue: Queue) -> None:
    """Let the schedule be due since the start of the minute, so that no test waits for the next one."""
    until_its_middle(queue.conn)
    queue.conn.execute("UPDATE messages.schedule SET next_tick = date_trunc('minute', clock_timestamp())")


def start_two_daemons(database: Database, folder: Path, ends: ExitStack) -> None:
    fleet = Fleet(folder)
    ends.callback(fleet.kill)
    for _ in range(2):
        # Seldom: a tick of pg_cron that meets another one leaves it the work, and pg_cron has one a minute.
        fleet.start(database.connect(), {"t": "work:echo"}, dsn=database.dsn, maintenance_interval="10s")


def test_pg_cron_fires_within_the_minute_without_a_daemon(minute: Minute) -> None:
    (run,) = minute.alone.runs()

    assert run.outcome == "published"
    assert 0 <= lateness_s([run])[0] < 75


def test_pg_cron_and_two_daemons_together_fire_every_tick_exactly_once(minute: Minute) -> None:
    eventually(lambda: len(minute.together.runs()) >= 5)
    stop_schedules(minute.together)
    assert_exactly_once(minute.together, "s")
