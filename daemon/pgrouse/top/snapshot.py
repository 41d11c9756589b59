"""What `pgrouse top` shows at one moment, by SQL that never counts a big table."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

import psycopg
from psycopg.rows import dict_row

# Counts of messages.stats stop here.
BOUND = 10_000
# So many dead messages are grouped: of each topic as many as the number of topics leaves it.
DEAD_BOUND = 20_000
DEAD_OF_A_TOPIC = (20, 500)
RATE_WINDOW_S = 300
MOST_GROUPS = 500
MOST_WORKERS = 500
LIMITS = b"SET TRANSACTION READ ONLY; SET LOCAL statement_timeout = '5s'; SET LOCAL enable_seqscan = off; SET LOCAL jit = off"

# messages.stats leaves out topics without messages; those with a worker, now or a moment ago, are shown all the same.
TOPICS = b"""
  WITH stats AS (
    SELECT s.* FROM messages.stats(%(bound)s) AS s
  ), handled AS (
    SELECT DISTINCT h.topic
    FROM messages.worker AS w
    CROSS JOIN LATERAL unnest(w.topics) AS h (topic)
    WHERE NOT w.stopping AND w.seen_at > clock_timestamp() - interval '1 minute'
    UNION SELECT s.topic FROM stats AS s WHERE s.handled
  ), measured AS (
    SELECT l.topic FROM messages.latency(make_interval(secs => %(window)s)) AS l
  ), known AS (
    SELECT s.topic FROM stats AS s
    UNION SELECT h.topic FROM handled AS h
    UNION SELECT l.topic FROM measured AS l
  )
  SELECT
    k.topic, coalesce(s.ready, 0) AS ready, coalesce(s.delayed, 0) AS delayed, coalesce(s.running, 0) AS running,
    coalesce(s.dead_last_day, 0) AS dead, s.oldest_ready_s, h.topic IS NOT NULL AS handled,
    CASE
      WHEN (t.paused_at IS NOT NULL AND (t.resume_at IS NULL OR t.resume_at > clock_timestamp()))
        OR (d.paused_at IS NOT NULL AND (d.resume_at IS NULL OR d.resume_at > clock_timestamp())) THEN 'paused'
      WHEN b.position = 'open' AND coalesce(t.breaker, d.breaker) IS NOT NULL THEN 'breaker'
      WHEN h.topic IS NULL THEN 'unhandled'
      ELSE 'running'
    END AS state
  FROM known AS k
  CROSS JOIN messages.topic AS d
  LEFT JOIN stats AS s ON s.topic = k.topic
  LEFT JOIN handled AS h ON h.topic = k.topic
  LEFT JOIN messages.topic AS t ON t.topic = k.topic
  LEFT JOIN messages.breaker AS b ON b.topic = k.topic
  WHERE d.topic = '*'
  ORDER BY k.topic"""
# The window of messages.latency begins with a whole minute.
LATENCY = b"""
  SELECT
    l.topic, l.wait_p95_s, l.run_p95_s,
    l.waits * 60 / extract(epoch FROM n.now - date_trunc('minute', n.now - make_interval(secs => %(window)s)))::double precision AS rate
  FROM messages.latency(make_interval(secs => %(window)s)) AS l
  CROSS JOIN messages.now() AS n (now)"""
WORKERS = b"""
  SELECT
    w.name, w.host, w.pid, w.concurrency, w.topics, w.status ->> 'listener' AS listener,
    extract(epoch FROM clock_timestamp() - w.seen_at)::double precision AS seen_s,
    CASE
      WHEN w.seen_at < clock_timestamp() - CASE w.kind WHEN 'http' THEN interval '2 minutes' ELSE interval '30 s' END THEN 'silent'
      WHEN w.stopping THEN 'stopping'
      ELSE 'working'
    END AS state
  FROM messages.worker AS w
  ORDER BY w.name
  LIMIT %(workers)s"""
# The claim loops of a worker claim under its name and their number.
RUNNING = b"""
  SELECT r.worker, r.topic, count(*) AS count, extract(epoch FROM clock_timestamp() - min(r.locked_at))::double precision AS oldest_s
  FROM (
    SELECT CASE WHEN m.locked_by LIKE 'http:%%' THEN m.locked_by ELSE regexp_replace(m.locked_by, '/[0-9]+$', '') END AS worker, m.topic, m.locked_at
    FROM messages.message AS m
    WHERE m.claim_id IS NOT NULL
    LIMIT %(bound)s
  ) AS r
  GROUP BY r.worker, r.topic
  ORDER BY count(*) DESC, r.topic"""
DEAD = b"""
  SELECT
    g.topic, g.result, g.error_fingerprint AS fingerprint, g.count - g.redriven AS count, g.at_least, g.trend, g.sample_id, g.sample_error,
    extract(epoch FROM clock_timestamp() - g.last_seen)::double precision AS last_s
  FROM messages.dead_groups('1 day', NULL, NULL, 24, (
    SELECT least(%(most)s, greatest(%(least)s, %(dead_bound)s / greatest(1, count(*))))::int FROM messages.dead_topics())) AS g
  WHERE g.redriven < g.count
  ORDER BY g.count - g.redriven DESC, g.last_seen DESC
  LIMIT %(groups)s"""
# A minute that has just begun would be as high as chance has it.
TIMES = b"""
  SELECT
    t.at, (t.success + t.rejected + t.failed + t.lock_expired + t.retried) * 60 / t.s AS rate, t.wait_p95_s, t.run_p95_s
  FROM messages.throughput('1 hour', NULL, 60) AS t
  WHERE t.s >= 20
  ORDER BY t.at"""
VALUES = {
    "bound": BOUND,
    "dead_bound": DEAD_BOUND,
    "least": DEAD_OF_A_TOPIC[0],
    "most": DEAD_OF_A_TOPIC[1],
    "window": RATE_WINDOW_S,
    "workers": MOST_WORKERS,
    "groups": MOST_GROUPS,
}


class TopicState(StrEnum):
    """Whether a topic is worked."""

    RUNNING = "running"
    PAUSED = "paused"
    BREAKER = "breaker"
    UNHANDLED = "unhandled"


@dataclass(frozen=True)
class TopicRow:
    """One topic; times in seconds, rate in messages claimed per minute. None: nothing is known, or there is none."""

    topic: str
    ready: int
    delayed: int
    running: int
    dead: int
    oldest_ready_s: float | None
    handled: bool
    state: TopicState
    rate: float | None = None
    wait_p95_s: float | None = None
    run_p95_s: float | None = None


@dataclass(frozen=True)
class WorkerRow:
    """One worker; running: how many messages of each topic it has in flight, the most first."""

    name: str
    host: str
    pid: int
    concurrency: int
    topics: list[str]
    listener: str | None
    seen_s: float
    state: str
    running: dict[str, int] = field(default_factory=dict)
    oldest_s: float | None = None


@dataclass(frozen=True)
class DeadGroup:
    """The dead messages of a day with one topic, result and fingerprint, without those that were put back. trend: by the hour."""

    topic: str
    result: str
    fingerprint: str | None
    count: int
    at_least: bool
    trend: list[int]
    sample_id: int
    sample_error: str | None
    last_s: float


@dataclass(frozen=True)
class ThroughputSeries:
    """The last hour, minute by minute: attempts ended per minute, the 95th percentiles of waits and runs in seconds (NULL: none)."""

    rate: list[float]
    wait_p95_s: list[float | None]
    run_p95_s: list[float | None]


@dataclass(frozen=True)
class QueueSnapshot:
    """All of it."""

    at: datetime
    database: str
    topics: list[TopicRow]
    workers: list[WorkerRow]
    dead: list[DeadGroup]
    times: ThroughputSeries


class SnapshotReader:
    """Reads snapshots. The groups of the dead, which cost most, only every few seconds, and a tenth of the time at most."""

    DEAD_EVERY_S = 5.0
    DEAD_SHARE = 10

    def __init__(self) -> None:
        self._dead: list[DeadGroup] = []
        self._dead_at = -math.inf

    def read(self, conn: psycopg.Connection, now: float) -> QueueSnapshot:
        """Read one, in one transaction that only reads. now: the monotonic clock."""
        with conn.transaction():
            conn.execute(LIMITS)
            topics, workers, times = _topics(conn), _workers(conn), _times(conn)
            if now >= self._dead_at:
                self._read_dead(conn)
        at = datetime.now().astimezone()
        return QueueSnapshot(at, _name(conn), topics, workers, self._dead, times)

    def _read_dead(self, conn: psycopg.Connection) -> None:
        began = time.monotonic()
        self._dead = [DeadGroup(**row) for row in _rows(conn, DEAD)]
        ended = time.monotonic()
        self._dead_at = ended + max(self.DEAD_EVERY_S, self.DEAD_SHARE * (ended - began))

    def forget(self) -> None:
        """Something was changed: the next snapshot reads all of it."""
        self._dead_at = -math.inf


def _name(conn: psycopg.Connection) -> str:
    """Name the database, and the host unless it is this one."""
    host = conn.info.host
    return conn.info.dbname if host.startswith("/") else f"{conn.info.dbname} at {host}"


def _topics(conn: psycopg.Connection) -> list[TopicRow]:
    measured = {row.pop("topic"): row for row in _rows(conn, LATENCY)}
    return [
        TopicRow(**{**row, "state": TopicState(row["state"]), **measured.get(row["topic"], {})})
        for row in _rows(conn, TOPICS)
    ]


def _workers(conn: psycopg.Connection) -> list[WorkerRow]:
    running: dict[str, dict[str, int]] = {}
    oldest: dict[str, float] = {}
    for row in _rows(conn, RUNNING):
        running.setdefault(row["worker"], {})[row["topic"]] = row["count"]
        oldest[row["worker"]] = max(oldest.get(row["worker"], 0.0), row["oldest_s"])
    return [
        WorkerRow(**row, running=running.get(row["name"], {}), oldest_s=oldest.get(row["name"]))
        for row in _rows(conn, WORKERS)
    ]


def _times(conn: psycopg.Connection) -> ThroughputSeries:
    rows = _rows(conn, TIMES)
    return ThroughputSeries(
        [float(row["rate"]) for row in rows],
        [row["wait_p95_s"] for row in rows],
        [row["run_p95_s"] for row in rows],
    )


def _rows(conn: psycopg.Connection, query: bytes) -> list[dict[str, Any]]:
    return conn.cursor(row_factory=dict_row).execute(query, VALUES).fetchall()
