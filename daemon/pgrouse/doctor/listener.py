"""Whether a notification arrives where daemons listen.

A LISTEN through a pooler in transaction mode succeeds, and nothing ever arrives. One who sends himself the notification through the same
pooled session hears it all the same: so another connection sends it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from secrets import token_hex

import psycopg

from pgrouse.doctor.finding import Finding, fail, ok
from pgrouse.doctor.target import Subject

# How long to wait for each notification that is sent, in seconds.
WAITS_S = (0.3, 1.0)


def look(subject: Subject) -> Iterator[Finding]:
    """Send a notification on a channel that nobody else knows, and wait for it."""
    separate = subject.settings.database.listen_dsn is not None
    where = "database.listen_dsn" if separate else "database.dsn"
    try:
        heard = _hears(subject)
    except psycopg.Error as error:
        what = f"nobody can listen at {where}: {subject.redacted(error)}"
        yield fail("listener", what, f"see {where}: it must lead to the primary itself")
        return
    if heard:
        yield ok("listener", f"a notification arrived at {where}")
        return
    mend = (
        "let database.listen_dsn lead to the same database as dsn, directly: not through a pooler in transaction mode"
        if separate
        else "set database.listen_dsn to a direct connection: dsn goes through a pooler in transaction mode"
    )
    yield fail(
        "listener", f"a notification that was sent did not arrive at {where}: messages wait for the next poll", mend
    )


def _hears(subject: Subject) -> bool:
    channel = f"doctor_{token_hex(8)}"
    with (
        psycopg.connect(subject.database.listen_conninfo, autocommit=True, prepare_threshold=None) as listener,
        subject.bounded(listener),
    ):
        listener.execute(f'LISTEN "{channel}"'.encode())
        heard = any(_arrives(subject, listener, channel, within_s) for within_s in WAITS_S)
        # Behind a pooler the session lives on, and with it what it listens to.
        with suppress(psycopg.Error):
            listener.execute(f'UNLISTEN "{channel}"'.encode())
    return heard


def _arrives(subject: Subject, listener: psycopg.Connection, channel: str, within_s: float) -> bool:
    with subject.bounded(subject.conn):
        subject.conn.execute("SELECT pg_catalog.pg_notify(%s, '')", [channel])
    return any(notify.channel == channel for notify in listener.notifies(timeout=within_s, stop_after=1))
