"""Checks for silent failures."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pgrouse.client.call import Call, function_call, interval, rows_call, value
from pgrouse.config.duration import AnyDuration


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A row of a check: level is ok, warn or fail."""

    code: str
    level: str
    what: str
    fix: str | None


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A row of `messages.lock_holders`."""

    kind: str
    topic: str | None
    what: str
    who: str
    pid: int | None
    since: datetime | None
    fix: str | None


def doctor() -> Call[list[FindingRow]]:
    """Make all checks that SQL can make."""
    return rows_call("doctor", FindingRow)


def examine_archive() -> Call[list[FindingRow]]:
    """Check the partitions of the archive, and what the retention must keep."""
    return rows_call("examine_archive", FindingRow)


def examine_conditions() -> Call[list[FindingRow]]:
    """Check backlogs, dying messages, open breakers, undelivered alerts."""
    return rows_call("examine_conditions", FindingRow)


def examine_connections() -> Call[list[FindingRow]]:
    """Check how many connections are left."""
    return rows_call("examine_connections", FindingRow)


def examine_schema() -> Call[list[FindingRow]]:
    """Check the triggers, indexes and rights that guard the messages."""
    return rows_call("examine_schema", FindingRow)


def examine_server() -> Call[list[FindingRow]]:
    """Check whether the server is fit to keep messages."""
    return rows_call("examine_server", FindingRow)


def examine_settings() -> Call[list[FindingRow]]:
    """Check settings that harm the queue."""
    return rows_call("examine_settings", FindingRow)


def examine_ticks() -> Call[list[FindingRow]]:
    """Check whether the maintenance runs."""
    return rows_call("examine_ticks", FindingRow)


def examine_topics() -> Call[list[FindingRow]]:
    """Check what is paused, and locks that are shorter than the work."""
    return rows_call("examine_topics", FindingRow)


def examine_workers() -> Call[list[FindingRow]]:
    """Check whether every topic has a worker that listens."""
    return rows_call("examine_workers", FindingRow)


def examine_holders(queue_used: float | None = None) -> Call[list[FindingRow]]:
    """Check what fills up or blocks because a session holds it."""
    return rows_call("examine_holders", FindingRow, queue_used=queue_used)


def examine_snapshots(held_for: AnyDuration | None = None, held_xids: int | None = None) -> Call[list[FindingRow]]:
    """Check for old snapshots."""
    return rows_call("examine_snapshots", FindingRow, held_for=interval(held_for, "held_for"), held_xids=held_xids)


def examine_tables(dead_rows: int | None = None, bytes: int | None = None) -> Call[list[FindingRow]]:
    """Check what makes claims slow."""
    return rows_call("examine_tables", FindingRow, dead_rows=dead_rows, bytes=bytes)


def lock_holders(
    topic: str | None = None, channel: str | None = None, message_id: int | None = None
) -> Call[list[LockHolder]]:
    """List the sessions that have locked rows that others need."""
    return rows_call("lock_holders", LockHolder, topic=topic, channel=channel, message_id=message_id)


def snapshot_age() -> Call[float | None]:
    """Return the age in seconds of the oldest transaction that keeps vacuum from removing rows; None = not visible."""
    return function_call("snapshot_age", value)
