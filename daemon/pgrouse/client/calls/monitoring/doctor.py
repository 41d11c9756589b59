"""Checks for silent failures."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pgrouse.client.call import Call, binding
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


@binding
def doctor() -> Call[list[FindingRow]]:
    """Make all checks that SQL can make."""


@binding
def examine_archive() -> Call[list[FindingRow]]:
    """Check the partitions of the archive, and what the retention must keep."""


@binding
def examine_conditions() -> Call[list[FindingRow]]:
    """Check backlogs, dying messages, open breakers, undelivered alerts."""


@binding
def examine_connections() -> Call[list[FindingRow]]:
    """Check how many connections are left."""


@binding
def examine_schema() -> Call[list[FindingRow]]:
    """Check the triggers, indexes and rights that guard the messages."""


@binding
def examine_server() -> Call[list[FindingRow]]:
    """Check whether the server is fit to keep messages."""


@binding
def examine_settings() -> Call[list[FindingRow]]:
    """Check settings that harm the queue."""


@binding
def examine_ticks() -> Call[list[FindingRow]]:
    """Check whether the maintenance runs."""


@binding
def examine_topics() -> Call[list[FindingRow]]:
    """Check what is paused, and locks that are shorter than the work."""


@binding
def examine_workers() -> Call[list[FindingRow]]:
    """Check whether every topic has a worker that listens."""


@binding
def examine_holders(queue_used: float | None = None) -> Call[list[FindingRow]]:
    """Check what fills up or blocks because a session holds it."""


@binding
def examine_snapshots(held_for: AnyDuration | None = None, held_xids: int | None = None) -> Call[list[FindingRow]]:
    """Check for old snapshots."""


@binding
def examine_tables(dead_rows: int | None = None, bytes: int | None = None) -> Call[list[FindingRow]]:
    """Check what makes claims slow."""


@binding
def lock_holders(
    topic: str | None = None, channel: str | None = None, message_id: int | None = None
) -> Call[list[LockHolder]]:
    """List the sessions that have locked rows that others need."""


@binding
def snapshot_age() -> Call[float | None]:
    """Return for how many seconds the oldest transaction has kept vacuum from removing rows.

    None = that may not be seen.
    """
