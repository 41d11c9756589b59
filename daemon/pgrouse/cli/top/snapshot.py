"""What `pgrouse top` shows at one moment, by SQL that never counts a big table."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

import psycopg

from pgrouse.client.call import run
from pgrouse.client.calls.dead import DeadGroup, dead_groups, dead_topics
from pgrouse.client.calls.monitoring.alert import OpenCondition, open_conditions
from pgrouse.client.calls.monitoring.state import TopicState, topic_state
from pgrouse.client.calls.monitoring.stats import TopicLatency, TopicStats, latency, stats, throughput
from pgrouse.client.queries import clock
from pgrouse.client.queries.worker import RegisteredWorker, count_held, find_workers, handled_topics
from pgrouse.client.redrive import bound_of_a_topic

# The maximum number of messages in flight that are shown by worker.
MOST_RUNNING = 10_000
# The maximum number of dead messages that are grouped; each topic gets an equal part.
DEAD_BOUND = 20_000
DEAD_OF_A_TOPIC = (20, 500)
RATE_WINDOW = timedelta(minutes=5)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
# A minute that has just begun would be as high as chance has it.
SHORTEST_BAR_S = 20
MOST_GROUPS = 500
MOST_WORKERS = 500
LIMITS = (
    b"SET TRANSACTION READ ONLY; SET LOCAL statement_timeout = '5s'; SET LOCAL enable_seqscan = off; "
    b"SET LOCAL jit = off"
)


@dataclass(frozen=True)
class TopicRow(TopicStats):
    """One topic; state: as of messages.topic_state; rate: messages claimed per minute. None: nothing was measured."""

    state: str
    rate: float | None = None
    wait_p95_s: float | None = None
    run_p95_s: float | None = None


@dataclass(frozen=True)
class WorkerRow(RegisteredWorker):
    """One worker; running: how many messages of each topic it has in flight, the most first."""

    running: dict[str, int]
    oldest_s: float | None

    @property
    def listener(self) -> str | None:
        """The state of its connection for notifications; None: it did not say, or is not alive."""
        found: str | None = self.status.get("listener") if self.alive else None
        return found


@dataclass(frozen=True)
class DeadRow(DeadGroup):
    """The dead messages of a day with one topic, result and fingerprint, without those that were put back.

    trend: by the hour.
    """

    last_s: float


@dataclass(frozen=True)
class ThroughputSeries:
    """The last hour, minute by minute.

    It has the attempts ended per minute, and the 95th percentiles of waits and runs in seconds (NULL: none).
    """

    rate: list[float]
    wait_p95_s: list[float | None]
    run_p95_s: list[float | None]


@dataclass(frozen=True)
class QueueSnapshot:
    """All of it. dead: None if they were not read yet."""

    at: datetime
    database: str
    problems: list[OpenCondition]
    topics: list[TopicRow]
    workers: list[WorkerRow]
    dead: list[DeadRow] | None
    times: ThroughputSeries


class SnapshotReader:
    """Reads snapshots.

    The groups of the dead, which cost most, are left out the first time; then they are read only every few seconds, and
    a tenth of the time at most.
    """

    DEAD_EVERY_S = 5.0
    DEAD_SHARE = 10

    def __init__(self) -> None:
        self._dead: list[DeadRow] | None = None
        self._dead_at: float | None = None

    def read(self, conn: psycopg.Connection, now: float) -> QueueSnapshot:
        """Read one, in one transaction that only reads. now: the monotonic clock."""
        with conn.transaction():
            conn.execute(LIMITS)
            problems = run(conn, open_conditions())
            topics, workers, times = _topics(conn), _workers(conn), _times(conn)
            if self._dead_at is None:
                self._dead_at = now
            elif now >= self._dead_at:
                self._read_dead(conn)
        at = datetime.now().astimezone()
        return QueueSnapshot(at, _name(conn), problems, topics, workers, self._dead, times)

    def _read_dead(self, conn: psycopg.Connection) -> None:
        began = time.monotonic()
        self._dead = _dead(conn)
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
    counts = {each.topic: each for each in run(conn, stats())}
    measured = {each.topic: each for each in run(conn, latency(RATE_WINDOW))}
    # Statistics leave out topics without messages; those with a worker, now or a moment ago, are shown all the same.
    states = run(conn, topic_state([*{*counts, *measured, *run(conn, handled_topics())}]))
    minutes = _measured_minutes(conn)
    return [_topic(each, counts.get(each.topic), measured.get(each.topic), minutes) for each in states]


def _topic(state: TopicState, count: TopicStats | None, measured: TopicLatency | None, minutes: float) -> TopicRow:
    count = count or TopicStats(state.topic, 0, 0, 0, 0, None, bool(state.handled))
    row = TopicRow(**asdict(count), state=state.state)
    if measured is None:
        return row
    rate = measured.waits / minutes
    return replace(row, rate=rate, wait_p95_s=measured.wait_p95_s, run_p95_s=measured.run_p95_s)


def _measured_minutes(conn: psycopg.Connection) -> float:
    """Return how long the window of the latencies is: it begins with a whole minute."""
    now = run(conn, clock.queue_now())
    return (now - (now - RATE_WINDOW).replace(second=0, microsecond=0)) / timedelta(minutes=1)


def _workers(conn: psycopg.Connection) -> list[WorkerRow]:
    running: dict[str, dict[str, int]] = {}
    oldest: dict[str, float] = {}
    for each in run(conn, count_held(MOST_RUNNING)):
        running.setdefault(each.worker, {})[each.topic] = each.count
        oldest[each.worker] = max(oldest.get(each.worker, 0.0), each.oldest_s)
    found = run(conn, find_workers(MOST_WORKERS))
    return [
        WorkerRow(**asdict(each), running=running.get(each.name, {}), oldest_s=oldest.get(each.name)) for each in found
    ]


def _dead(conn: psycopg.Connection) -> list[DeadRow]:
    least, most = DEAD_OF_A_TOPIC
    bound = bound_of_a_topic(len(run(conn, dead_topics())), DEAD_BOUND, least, most)
    groups = [each for each in run(conn, dead_groups(DAY, bars=24, bound=bound)) if each.redriven < each.count]
    groups.sort(key=lambda each: (each.count - each.redriven, each.last_seen), reverse=True)
    now = run(conn, clock.now())
    return [_dead_row(each, now) for each in groups[:MOST_GROUPS]]


def _dead_row(group: DeadGroup, now: datetime) -> DeadRow:
    left = replace(group, count=group.count - group.redriven)
    return DeadRow(**asdict(left), last_s=(now - group.last_seen).total_seconds())


def _times(conn: psycopg.Connection) -> ThroughputSeries:
    bars = [each for each in run(conn, throughput(HOUR, bars=60)) if each.s >= SHORTEST_BAR_S]
    return ThroughputSeries(
        [
            (each.success + each.rejected + each.failed + each.lock_expired + each.retried) * 60 / each.s
            for each in bars
        ],
        [each.wait_p95_s for each in bars],
        [each.run_p95_s for each in bars],
    )
