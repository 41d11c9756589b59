"""Reads rows from a standby: checks whether it has everything that the primary had when the read was planned."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgrouse.errors import ConfigError, DatabaseUnreachable

if TYPE_CHECKING:
    import psycopg

# How long a task waits for a standby that lags behind.
REPLAY_TIMEOUT_S = 30.0
POLL_S = 0.2

# The WAL records of all rows in a snapshot were written before the snapshot was taken. If a standby plans, the limit is
# what it has replayed.
TARGET = """
    SELECT
      s.system_identifier::text,
      (
        CASE WHEN r.is_standby THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_insert_lsn() END
      )::text,
      CASE WHEN NOT r.is_standby THEN left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8) END
    FROM pg_catalog.pg_control_system() AS s, pg_catalog.pg_is_in_recovery() AS r (is_standby)
"""
# A server that is not a standby has every row only if it planned the read: a promoted server has another timeline.
REPLAYED = """
    SELECT
      s.system_identifier::text AS system,
      CASE
        WHEN r.is_standby THEN pg_catalog.pg_last_wal_replay_lsn()
        WHEN left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8) = $2::text
          THEN pg_catalog.pg_current_wal_insert_lsn()
      END::text AS lsn,
      CASE
        WHEN r.is_standby THEN pg_catalog.pg_last_wal_replay_lsn() >= $1::pg_lsn
        ELSE left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8) = $2::text
      END AS is_there
    FROM pg_catalog.pg_control_system() AS s, pg_catalog.pg_is_in_recovery() AS r (is_standby)
"""


@dataclass(frozen=True)
class ReplayTarget:
    """How far a standby must have replayed.

    Attributes:
        system: the system identifier of the cluster.
        lsn: a place in the WAL.
        timeline: the timeline of the primary; None = a standby planned the read.
    """

    system: str
    lsn: str
    timeline: str | None


def replay_target(conn: psycopg.Connection[Any]) -> ReplayTarget:
    """Return how far a standby must have replayed to have everything that was visible on this server until now."""
    return ReplayTarget(*conn.execute(TARGET).fetchone())  # type: ignore[misc]


def wait_for_replay(cursor: Any, target: ReplayTarget, timeout_s: float = REPLAY_TIMEOUT_S) -> None:
    """Wait until a standby has replayed this far.

    Args:
        cursor: a cursor of ADBC, on an autocommit connection: each statement has its own snapshot.
        target: from `replay_target`.
        timeout_s: how long to wait, in seconds.

    Raises:
        ConfigError: this is another cluster, or not a standby of it.
        DatabaseUnreachable: it did not replay this far in time.
    """
    deadline = time.monotonic() + timeout_s
    while not (replayed := _replayed(cursor, target))[0]:
        if time.monotonic() >= deadline:
            raise DatabaseUnreachable(
                f"the standby of option replicaDsn lags behind: the read needs {target.lsn} of the WAL, "
                "and the standby has replayed "
                f"{replayed[1]} after {timeout_s:.0f} s. Run the read again later, or leave replicaDsn out"
            )
        time.sleep(POLL_S)


def _replayed(cursor: Any, target: ReplayTarget) -> tuple[bool, str]:
    cursor.execute(REPLAYED, [target.lsn, target.timeline or ""])
    system, lsn, is_there = cursor.fetchone()
    if system != target.system:
        raise ConfigError(
            f"option replicaDsn names the cluster {system}, and option dsn {target.system}: "
            "name a standby of the same cluster"
        )
    if lsn is None:
        raise ConfigError("option replicaDsn names no standby of the server of option dsn: was it promoted?")
    return bool(is_there), str(lsn)
