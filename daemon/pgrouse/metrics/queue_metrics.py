"""The metrics of the whole queue, read from the database and served by the web server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from psycopg import AsyncConnection

from pgrouse.client.call import run_async
from pgrouse.client.calls.doctor import snapshot_age
from pgrouse.client.calls.export import list_exports
from pgrouse.client.calls.stats import TopicStats, stats
from pgrouse.client.clock import tick_ages
from pgrouse.metrics import catalogue as c
from pgrouse.metrics.prometheus import family, single

Row = dict[str, Any]

# How many series a metric may have that has one for each topic and result, or for each condition.
MAX_SERIES = 5_000
POLICIES = b"""
    SELECT k.topic,
           coalesce(t.paused_at IS NOT NULL AND coalesce(t.resume_at, 'infinity') > messages.now(), false)
             OR coalesce(d.paused_at IS NOT NULL AND coalesce(d.resume_at, 'infinity') > messages.now(), false)
             OR coalesce(b.position = 'open' AND coalesce(t.breaker, d.breaker) IS NOT NULL, false) AS stopped,
           coalesce(t.notify, d.notify) <> 'off' AS notify
    FROM unnest(%(counted)s::text[]) AS k (topic)
    JOIN messages.topic AS d ON d.topic = '*'
    LEFT JOIN messages.topic AS t ON t.topic = k.topic
    LEFT JOIN messages.breaker AS b ON b.topic = k.topic"""
# Which topics are wanted: by names, or beginnings that end with *.
WANTED = """EXISTS (
      SELECT FROM unnest(%(topics)s::text[]) AS w (topic)
      WHERE c.topic = w.topic OR right(w.topic, 1) = '*' AND starts_with(c.topic, left(w.topic, -1)))"""
DIED = f"""
    SELECT c.topic, c.result, sum(c.count)::bigint AS count
    FROM messages.dead_count AS c
    WHERE {WANTED}
    GROUP BY c.topic, c.result
    ORDER BY c.topic = ANY (%(counted)s) DESC, sum(c.count) DESC
    LIMIT {MAX_SERIES}""".encode()  # noqa: S608 - constants only
WORKERS = b"""
    SELECT count(*) FILTER (WHERE w.state = 'working') AS working, count(*) FILTER (WHERE w.state = 'draining') AS draining,
           count(*) FILTER (WHERE w.state = 'stopping') AS stopping, count(*) FILTER (WHERE w.state = 'silent') AS silent
    FROM messages.worker_state AS w"""
NOTIFY_QUEUE = b"SELECT pg_notification_queue_usage() AS used"
ALERTS = b"""
    SELECT count(*) AS undelivered, coalesce(extract(epoch FROM clock_timestamp() - min(d.created_at)), 0)::float8 AS oldest_s
    FROM (
      SELECT d.created_at FROM messages.alert_delivery AS d
      WHERE d.delivered_at IS NULL AND d.abandoned_at IS NULL LIMIT 10000) AS d"""
CONDITIONS = f"""
    SELECT c.kind, c.topic FROM messages.condition AS c
    WHERE c.topic = '' OR {WANTED}
    ORDER BY c.topic <> '', c.since, c.kind, c.topic
    LIMIT {MAX_SERIES}""".encode()  # noqa: S608 - constants only

STATES = ("ready", "delayed", "running")
DEAD_RESULTS = ("rejected", "failed", "lock_expired", "expired")


class CachedMetrics(Collector):
    """Serves metrics that were already read."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self.metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Yield them."""
        yield from self.metrics


async def read_queue_metrics(conn: AsyncConnection[Row], topics: Sequence[str] = ("*",)) -> list[Metric]:
    """Read the metrics of the queue.

    Args:
        conn: a connection with dict rows, in a transaction that bounds its statements.
        topics: those that the caller may see, by names, or beginnings that end with *.
    """
    counts = await run_async(conn, stats(topics=topics))
    counted = [each.topic for each in counts]
    died = await _rows(conn, DIED, {"topics": list(topics), "counted": counted})
    policies = await _rows(conn, POLICIES, {"counted": counted})
    conditions = await _rows(conn, CONDITIONS, {"topics": list(topics)})
    (workers,), (queue,), (alerts,) = [await _rows(conn, each) for each in (WORKERS, NOTIFY_QUEUE, ALERTS)]
    ticks, snapshot_s = await run_async(conn, tick_ages()), await run_async(conn, snapshot_age())
    exports_held = sum(each.held_since is not None for each in await run_async(conn, list_exports()))
    metrics = [
        single(c.DATABASE_UP, 1),
        *_topics(counts),
        family(c.DIED, _died(died, counts)),
        family(c.STOPPED, [((row["topic"],), row["stopped"]) for row in policies]),
        family(c.NOTIFY, [((row["topic"],), row["notify"]) for row in policies]),
        family(c.WORKERS, [((state,), count) for state, count in workers.items()]),
        family(c.TICK_AGE, [((caller,), age_s) for caller, age_s in ticks.items()]),
        single(c.ALERTS, alerts["undelivered"]),
        single(c.ALERTS_AGE, alerts["oldest_s"]),
        family(c.CONDITIONS, [((row["kind"], row["topic"]), 1) for row in conditions]),
        single(c.NOTIFY_QUEUE, queue["used"]),
        single(c.EXPORTS_HELD, exports_held),
    ]
    # A value that cannot be read is left out, not 0.
    return metrics if snapshot_s is None else [*metrics, single(c.SNAPSHOT_AGE, snapshot_s)]


def database_down() -> list[Metric]:
    """Return the metrics while the database does not answer."""
    return [single(c.DATABASE_UP, 0)]


def render(metrics: Sequence[Metric], accept: str) -> tuple[bytes, str]:
    """Return metrics in the format that was asked for, and its media type."""
    registry = CollectorRegistry()
    registry.register(CachedMetrics(metrics))
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


def _topics(topics: list[TopicStats]) -> Iterator[Metric]:
    yield family(c.DEPTH, [((each.topic, state), getattr(each, state)) for each in topics for state in STATES])
    yield family(c.OLDEST, [((each.topic,), each.oldest_ready_s or 0) for each in topics])
    yield family(c.DEAD, [((each.topic,), each.dead_last_day) for each in topics])
    yield family(c.HANDLED, [((each.topic,), each.handled) for each in topics])


def _died(died: list[Row], topics: list[TopicStats]) -> list[tuple[tuple[str, str], int]]:
    """Return the counters; those of a topic that is known begin at 0, so that its first death is a rise."""
    counts = {(each.topic, result): 0 for each in topics for result in DEAD_RESULTS}
    counts |= {(row["topic"], row["result"]): row["count"] for row in died}
    return sorted(counts.items())


async def _rows(conn: AsyncConnection[Row], statement: bytes, values: Row | None = None) -> list[Row]:
    return await (await conn.execute(statement, values)).fetchall()
