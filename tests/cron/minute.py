"""The times at which pg_cron runs jobs: the start of each minute."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.server.deadline import eventually


def until_its_middle(conn: psycopg.Connection[Any]) -> None:
    """Return far from the start of a minute: then pg_cron would run what a test has just installed or broken."""
    middle = "SELECT extract(second FROM clock_timestamp()) BETWEEN 3 AND 52"
    eventually(lambda: conn.execute(middle).fetchone() == (True,), every_s=0.1)
