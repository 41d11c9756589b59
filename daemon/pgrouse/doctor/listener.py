"""Checks whether a notification arrives where daemons listen.

Through a pooler in transaction mode LISTEN succeeds, but no notification arrives. A session that notifies itself
through the same pooled connection gets its notification even then, so another connection sends it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from secrets import token_hex

import psycopg

from pgrouse.doctor.finding import Finding, fail, ok
from pgrouse.doctor.target import DoctorTarget

# How long to wait for each notification that is sent, in seconds.
WAITS_S = (0.3, 1.0)


def check(target: DoctorTarget) -> Iterator[Finding]:
    """Send a notification on a random NOTIFY channel, and wait for it."""
    separate = target.settings.database.listen_dsn is not None
    where = "database.listen_dsn" if separate else "database.dsn"
    try:
        arrived = _notification_arrives(target)
    except psycopg.Error as error:
        what = f"LISTEN is not possible at {where}: {target.redacted(error)}"
        yield fail("listener", what, f"see {where}: it must lead to the primary directly")
        return
    if arrived:
        yield ok("listener", f"a notification arrived at {where}")
        return
    fix = (
        "set database.listen_dsn to a direct connection to the same database as dsn, "
        "not through a pooler in transaction mode"
        if separate
        else "set database.listen_dsn to a direct connection: dsn goes through a pooler in transaction mode"
    )
    yield fail("listener", f"a notification did not arrive at {where}: messages wait for the next poll", fix)


def _notification_arrives(target: DoctorTarget) -> bool:
    channel = f"doctor_{token_hex(8)}"
    with (
        psycopg.connect(target.database.listen_conninfo, autocommit=True, prepare_threshold=None) as listener,
        target.bounded(listener),
    ):
        listener.execute(f'LISTEN "{channel}"'.encode())
        arrived = any(_send_and_wait(target, listener, channel, within_s) for within_s in WAITS_S)
        # Behind a pooler the session would live on and continue to listen.
        with suppress(psycopg.Error):
            listener.execute(f'UNLISTEN "{channel}"'.encode())
    return arrived


def _send_and_wait(target: DoctorTarget, listener: psycopg.Connection, channel: str, within_s: float) -> bool:
    with target.bounded(target.conn):
        target.conn.execute("SELECT pg_catalog.pg_notify(%s, '')", [channel])
    return any(notify.channel == channel for notify in listener.notifies(timeout=within_s, stop_after=1))
