"""The sessions in a database that is about to be copied or dropped."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

# How long a session may take to end. Usually it takes less than a millisecond.
ENDS_WITHIN_S = 10


def end_sessions(conn: psycopg.Connection[Any], database: str) -> None:
    """End all other sessions in a database, and wait until they have ended.

    DROP DATABASE … WITH (FORCE) alone waits in steps of 100 ms for sessions that are just ending.
    """
    others = "FROM pg_stat_activity AS a WHERE a.datname = %s AND a.pid <> pg_backend_pid()"
    conn.execute(f"SELECT pg_terminate_backend(a.pid) {others}", [database])
    deadline = time.monotonic() + ENDS_WITHIN_S
    while conn.execute(f"SELECT {others}", [database]).rowcount:
        if time.monotonic() > deadline:
            return
        time.sleep(0.002)
