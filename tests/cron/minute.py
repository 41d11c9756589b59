"""When pg_cron runs jobs: at the turn of a minute."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.server.deadline import eventually


def until_its_middle(conn: psycopg.Connection[Any]) -> None:
    """Return far from the turn of a minute: there pg_cron would run what a test has just installed, or broken, while it looks at it."""
    middle = "SELECT extract(second FROM clock_timestamp()) BETWEEN 3 AND 52"
    eventually(lambda: conn.execute(middle).fetchone() == (True,), every_s=0.1)
