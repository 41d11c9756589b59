"""The times at which pg_cron runs jobs: the start of each minute, or more often."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.server.deadline import eventually
from tests.server.postgres import Postgres


def until_its_middle(conn: psycopg.Connection[Any]) -> None:
    """Return far from the start of a minute: then pg_cron would run what a test has just installed or broken."""
    middle = "SELECT extract(second FROM clock_timestamp()) BETWEEN 3 AND 52"
    eventually(lambda: conn.execute(middle).fetchone() == (True,), every_s=0.1)


def knows_seconds(server: Postgres) -> bool:
    """Whether the pg_cron of this server can run a job more often than each minute."""
    return server.version >= 17


def tick_each_second(jobs: psycopg.Connection[Any]) -> None:
    """Let the ticks of all queues run each second."""
    ticks = "SELECT jobid FROM cron.job WHERE jobname LIKE 'messages.tick%'"
    jobs.execute(f"SELECT cron.alter_job(jobid, schedule => '1 seconds') FROM ({ticks}) AS j")
