"""The registry of workers: who is there, and what each does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from pgrouse.client.call import Call, decoded, first, pair, query_call, select_call, values

BY_WORKER_AND_TOPIC = """
  SELECT r.worker, r.topic, count(*) AS count,
         extract(epoch FROM clock_timestamp() - min(r.locked_at))::double precision AS oldest_s
  FROM (
    SELECT messages.worker_of(m.locked_by) AS worker, m.topic, m.locked_at
    FROM messages.message AS m WHERE m.claim_id IS NOT NULL LIMIT %(most)s
  ) AS r
  GROUP BY r.worker, r.topic"""
# The locked rows are few; of each worker those that run longest.
LONGEST = """
  SELECT m.*,
         row_number() OVER (PARTITION BY m.worker ORDER BY m.locked_at, m.id) AS place,
         count(*) OVER (PARTITION BY m.worker) AS total
  FROM (
    SELECT messages.worker_of(m.locked_by) AS worker, m.id, m.topic, m.channel, m.attempts, m.locked_at,
           m.lock_expires_at, m.progress
    FROM messages.message AS m WHERE m.claim_id IS NOT NULL LIMIT 20000
  ) AS m"""
COUNTS = """
  SELECT
    count(*) FILTER (WHERE w.state = 'working') AS working,
    count(*) FILTER (WHERE w.state = 'draining') AS draining,
    count(*) FILTER (WHERE w.state = 'stopping') AS stopping,
    count(*) FILTER (WHERE w.state = 'silent') AS silent,
    count(*) FILTER (WHERE w.alive AND w.listener = 'listening') AS listening,
    count(*) FILTER (WHERE w.alive AND w.listener = 'degraded') AS degraded
  FROM messages.worker_state AS w"""
HANDLED = (
    b"SELECT DISTINCT h.topic FROM messages.worker_state AS w CROSS "
    b"JOIN LATERAL unnest(w.topics) AS h (topic) WHERE w.handles"
)
ARMED = b"SELECT s.worker FROM messages.sleeper AS s WHERE s.armed_until > clock_timestamp()"
REQUESTS = b"""
    SELECT w.drain_asked_at IS NOT NULL, w.requested_concurrency FROM messages.worker AS w
    WHERE w.name OPERATOR(pg_catalog.=) %s
"""
CONNECTIONS = b"""
  SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
           - coalesce(current_setting('reserved_connections', true), '0')::int AS most,
         (SELECT count(*)::int FROM messages.worker_state AS w WHERE w.kind = 'daemon' AND w.alive) AS workers
"""


@dataclass(frozen=True, slots=True)
class RegisteredWorker:
    """A worker of the last hour.

    Attributes:
        topics: the topics that it handles.
        concurrency: how many handlers it runs at once; over HTTP, how many messages it last asked for.
        status_json: what it last reported.
        kind: daemon; or http, a worker known by its claims.
        drain_asked_at: when it was asked to drain; None: it was not.
        drain_asked_by: who asked it to drain.
        configured_concurrency: how many handlers it ran at once before it was scaled.
        state: working, draining, stopping, silent (a daemon not seen for 30 seconds: it died, hangs or is disconnected)
            or gone (over HTTP, not seen for two minutes: it has stopped claiming).
        up: how long ago it started.
        age: how long ago it was last seen.
        topic_limits_json: how many messages it may run at once, of those of its topics whose policy limits that.
    """

    name: str
    host: str
    pid: int
    version: str
    topics: list[str]
    concurrency: int
    started_at: datetime
    seen_at: datetime
    status_json: str
    kind: str
    drain_asked_at: datetime | None
    drain_asked_by: str | None
    configured_concurrency: int
    state: str
    up: timedelta
    age: timedelta
    topic_limits_json: str

    status = decoded("status_json")
    topic_limits = decoded("topic_limits_json")

    @property
    def alive(self) -> bool:
        """Whether it was seen lately."""
        return self.state not in ("silent", "gone")


@dataclass(frozen=True, slots=True)
class WorkerCounts:
    """How many workers there are, by their state, and by that of the listener of those that are alive."""

    working: int
    draining: int
    stopping: int
    silent: int
    listening: int
    degraded: int


@dataclass(frozen=True, slots=True)
class HeldCount:
    """How many messages of a topic a worker runs. oldest_s: for how long it has run the oldest."""

    worker: str
    topic: str
    count: int
    oldest_s: float


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """A message that a worker runs.

    Attributes:
        progress_json: what its handler reported.
        total: how many messages the worker runs.
    """

    worker: str
    id: int
    topic: str
    channel: str | None
    attempts: int
    locked_at: datetime
    lock_expires_at: datetime
    progress_json: str | None
    total: int


def find_workers(most: int | None = None) -> Call[list[RegisteredWorker]]:
    """Read the workers, by name. most: how many; None = all."""
    return select_call("worker_state", RegisteredWorker, "ORDER BY f.name LIMIT %(most)s", most=most)


def find_worker(name: str) -> Call[RegisteredWorker | None]:
    """Read one worker; None: there is none of this name."""
    return first(select_call("worker_state", RegisteredWorker, "WHERE f.name = %(name)s", name=name))


def latest_daemon(host: str) -> Call[RegisteredWorker | None]:
    """Read the daemon of a host that was seen last."""
    clauses = "WHERE f.host = %(host)s AND f.kind = 'daemon' ORDER BY f.seen_at DESC LIMIT 1"
    return first(select_call("worker_state", RegisteredWorker, clauses, host=host))


def count_workers() -> Call[list[WorkerCounts]]:
    """Count the workers: one row."""
    return query_call(COUNTS, WorkerCounts)


def armed_workers() -> Call[list[str]]:
    """Read the names of the workers that sleep and are armed."""
    return Call(ARMED, [], values)


def count_held(most: int | None = None) -> Call[list[HeldCount]]:
    """Count the running messages by worker and topic. most: how many messages are looked at; None = all."""
    return query_call(BY_WORKER_AND_TOPIC, HeldCount, "ORDER BY f.count DESC, f.topic", most=most)


def find_held(most_of_each: int) -> Call[list[HeldMessage]]:
    """Read the messages that each worker has run longest, at most this many of each."""
    return query_call(LONGEST, HeldMessage, "WHERE f.place <= %(most)s ORDER BY f.worker, f.place", most=most_of_each)


def worker_requests(name: str) -> Call[tuple[bool, int | None] | None]:
    """Read whether a worker was asked to drain, and the concurrency that was asked for; None: it is not registered."""
    return first(Call(REQUESTS, [name], list))


def count_connections() -> Call[tuple[int, int]]:
    """Say how many connections the server has for those who are no superusers, and how many daemons are alive."""
    return Call(CONNECTIONS, [], pair)


def handled_topics() -> Call[list[str]]:
    """Read the topics of all workers that get messages."""
    return Call(HANDLED, [], values)
