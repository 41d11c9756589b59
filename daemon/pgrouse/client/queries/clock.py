"""Times by the clock of the server, and how full its queue of notifications is."""

from __future__ import annotations

from datetime import datetime

from pgrouse.client.call import Call, value

NOW = b"SELECT pg_catalog.clock_timestamp()"
QUEUE_NOW = b"SELECT messages.now()"
NOTIFY_QUEUE = b"SELECT pg_catalog.pg_notification_queue_usage()"
AGE = b"SELECT extract(epoch FROM messages.now() OPERATOR(pg_catalog.-) %s::pg_catalog.timestamptz)::float8"
TICKS = b"""
  SELECT k.caller,
         extract(epoch FROM pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.max(k.ran_at))::float8,
         pg_catalog.max(k.ran_at)
  FROM messages.tick_mark AS k GROUP BY k.caller ORDER BY k.caller"""


def now() -> Call[datetime]:
    """Read the clock."""
    return Call(NOW, [], value)


def queue_now() -> Call[datetime]:
    """Read the queue's clock: that of the server, unless a test has set it."""
    return Call(QUEUE_NOW, [], value)


def age_s(moment: datetime) -> Call[float]:
    """Say how many seconds ago that was, by the queue's clock."""
    return Call(AGE, [moment], value)


def tick_ages() -> Call[dict[str, float]]:
    """Say for each caller of the maintenance how many seconds ago it last was called."""
    return Call(TICKS, [], lambda rows: {caller: age for caller, age, _ in rows})


def last_ticks() -> Call[dict[str, datetime]]:
    """Say for each caller of the maintenance when it last was called."""
    return Call(TICKS, [], lambda rows: {caller: at for caller, _, at in rows})


def notify_queue_usage() -> Call[float]:
    """Say which part of the server's queue of notifications is in use."""
    return Call(NOTIFY_QUEUE, [], value)
