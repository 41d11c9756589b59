"""Positions in the archive, and the watermark below which it no longer changes.

A transaction id below the oldest one that still runs is settled: its rows are all there, or never will be. So a reader
that stays below that watermark misses nothing and reads nothing twice, however late other transactions commit.
`(archive_xid, id)` splits even a single transaction that archived a million rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgrouse.client.call import run
from pgrouse.client.queries.pipeline.archive_row import last_row, nth_row, row_within_bytes
from pgrouse.client.queries.pipeline.row import EVERYTHING, Key, Scope
from pgrouse.errors import ConfigError

if TYPE_CHECKING:
    import psycopg

VERSION = 1

WATERMARK = "SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text"
NEWEST = "SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text"
# The numbers of the database and of the schema stay when they are renamed. A restored dump has others.
QUEUE = """
    SELECT pg_catalog.format('%s/%s/%s', s.system_identifier, d.oid, n.oid)
    FROM pg_catalog.pg_control_system() AS s, pg_catalog.pg_database AS d, pg_catalog.pg_namespace AS n
    WHERE d.datname = pg_catalog.current_database() AND n.nspname = 'messages'
"""

LAG = """
    WITH writing AS (
      SELECT
        clock_timestamp() - s.xact_start AS age,
        format('pid %s of role %s in database %s (%s)', s.pid, s.usename, s.datname, s.application_name) AS holder
      FROM pg_catalog.pg_stat_activity AS s
      WHERE s.backend_xid IS NOT NULL
      UNION ALL
      SELECT clock_timestamp() - p.prepared, format('the prepared transaction %L in database %s', p.gid, p.database)
      FROM pg_catalog.pg_prepared_xacts AS p
    ), oldest AS (
      SELECT w.age, w.holder FROM writing AS w ORDER BY w.age DESC NULLS LAST LIMIT 1
    )
    SELECT
      (pg_snapshot_xmax(n.snapshot)::text::numeric - pg_snapshot_xmin(n.snapshot)::text::numeric)::bigint,
      extract(epoch FROM o.age)::double precision,
      o.holder
    FROM pg_catalog.pg_current_snapshot() AS n (snapshot)
    LEFT JOIN oldest AS o ON true
"""
RECOVERY_HINT = (
    "Its rows are other ones here, so going on would lose rows or read them twice. "
    "Either name the database and the schema that were read before, or start over: an empty checkpoint and an empty "
    "place to write to, with startingOffsets earliest"
)


@dataclass(frozen=True)
class Position:
    """A place in the archive. As a start it is exclusive, as an end inclusive."""

    queue: str
    """The queue whose archive this is, from `queue_identifier`."""
    xid: str
    id: int

    @property
    def key(self) -> Key:
        """The row that it names."""
        return self.xid, self.id

    def as_offset(self) -> dict[str, Any]:
        """Return it in the form of Spark's checkpoints. xid is text: in JSON, numbers above 2**53 are not safe."""
        return {"v": VERSION, "queue": self.queue, "xid": self.xid, "id": self.id}

    @classmethod
    def from_offset(cls, offset: dict[str, Any]) -> Position:
        """Return the position in a checkpoint.

        Raises:
            ConfigError: it is not a position, or one of a later version.
        """
        match offset:
            case {"v": 1, "queue": str(queue), "xid": str(xid), "id": int(id_)} if xid.isdecimal():
                return cls(queue, xid, id_)
        raise ConfigError(
            f"not a position in the archive: {offset!r}; "
            'expected {"v": 1, "queue": "7710...", "xid": "941", "id": 17}'
        )


def queue_identifier(conn: psycopg.Connection[Any]) -> str:
    """Return what identifies this queue: its cluster, which a standby shares, its database and its schema."""
    return str(conn.execute(QUEUE).fetchone()[0])  # type: ignore[index]


def watermark(conn: psycopg.Connection[Any]) -> str:
    """Return the oldest transaction id that is not settled: every row with a lower id is permanent."""
    return str(conn.execute(WATERMARK).fetchone()[0])  # type: ignore[index]


def next_end(
    conn: psycopg.Connection[Any],
    start: Position,
    limit_rows: int,
    limit_bytes: int,
    watermark: str,
    filter: Scope = EVERYTHING,  # noqa: A002 - the word for it
) -> Position | None:
    """Return where a batch that begins after `start` ends; None if there are no rows.

    Args:
        conn: a connection.
        start: exclusive.
        limit_rows: the maximum number of rows of the batch.
        limit_bytes: the maximum size of the rows as stored, though at least one row; 0 = no limit.
        watermark: the result of `watermark`, possibly from an earlier moment.
        filter: the condition on rows.
    """
    below = (start.key, watermark, filter.sql())
    if limit_bytes:
        end = run(conn, row_within_bytes(*below, limit_rows, limit_bytes))
    else:
        end = run(conn, nth_row(*below, limit_rows)) or run(conn, last_row(*below))
    return Position(start.queue, *end) if end else None


def check_queue(conn: psycopg.Connection[Any], position: Position) -> None:
    """Check that a position belongs to this queue.

    Raises:
        ConfigError: it is of another queue, or of this one's future: the cluster was restored. The text says what to
            do.
    """
    here = queue_identifier(conn)
    newest = int(conn.execute(NEWEST).fetchone()[0])  # type: ignore[index]
    if position.queue != here:
        raise ConfigError(f"this position is of another queue ({position.queue}; this one is {here}). {RECOVERY_HINT}")
    if int(position.xid) > newest:
        raise ConfigError(
            f"this position is ahead of the database (transaction {position.xid}, but it is at {newest}): "
            f"it was restored from a backup. {RECOVERY_HINT}"
        )


@dataclass(frozen=True)
class WatermarkLag:
    """How far the watermark is behind, and what holds it back."""

    transactions: int
    """How many transaction ids lie between the watermark and the newest."""
    oldest_s: float | None
    """How long ago the oldest transaction with a write began, in seconds; None if there is none, or this role may not
    see it."""
    holder: str | None
    """A description of that transaction."""

    def __str__(self) -> str:
        behind = f"the watermark is {self.transactions} transactions behind"
        return f"{behind}, held for {self.oldest_s:.0f} s by {self.holder}" if self.oldest_s is not None else behind


def watermark_lag(conn: psycopg.Connection[Any]) -> WatermarkLag:
    """Measure how far the watermark is behind.

    A transaction that has written holds it back until it ends, in any database of the cluster; so does a prepared
    transaction. Seeing the transactions of other roles needs pg_read_all_stats.
    """
    row = conn.execute(LAG).fetchone()
    return WatermarkLag(*row)  # type: ignore[misc]
