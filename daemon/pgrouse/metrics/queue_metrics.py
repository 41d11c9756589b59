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
from pgrouse.client.calls.export import list_exports
from pgrouse.client.calls.monitoring.alert import OpenCondition, open_conditions
from pgrouse.client.calls.monitoring.doctor import snapshot_age
from pgrouse.client.calls.monitoring.state import topic_state
from pgrouse.client.calls.monitoring.stats import TopicStats, stats
from pgrouse.client.message_state import DEAD
from pgrouse.client.queries.alert import undelivered
from pgrouse.client.queries.clock import notify_queue_usage, tick_ages
from pgrouse.client.queries.schedule import RunTimes, run_times
from pgrouse.client.queries.topic import DeadCount, dead_counts, effective_policy, find_policies
from pgrouse.client.queries.worker import count_workers
from pgrouse.metrics import catalogue as c
from pgrouse.metrics.prometheus import family, single

# How many series a metric may have that has one for each topic and result, or for each condition.
MAX_SERIES = 5_000

WORKER_STATES = ("working", "draining", "stopping", "silent")
STATES = ("ready", "delayed", "running")


class CachedMetrics(Collector):
    """Serves metrics that were already read."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self.metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Yield them."""
        yield from self.metrics


async def read_queue_metrics(conn: AsyncConnection[Any], topics: Sequence[str] = ("*",)) -> list[Metric]:
    """Read the metrics of the queue.

    Args:
        conn: a connection in a transaction that bounds its statements.
        topics: those that the caller may see, by names, or beginnings that end with *.
    """
    counts = await run_async(conn, stats(topics=topics))
    counted = [each.topic for each in counts]
    died = await run_async(conn, dead_counts(topics, counted, MAX_SERIES))
    states = await run_async(conn, topic_state(counted))
    policies = await run_async(conn, find_policies(counted, ["notify"]))
    conditions = await _conditions(conn, topics)
    (workers,), waiting = await run_async(conn, count_workers()), await run_async(conn, undelivered())
    ticks, snapshot_s = await run_async(conn, tick_ages()), await run_async(conn, snapshot_age())
    exports_held = sum(each.held_since is not None for each in await run_async(conn, list_exports()))
    schedules = await run_async(conn, run_times(topics, MAX_SERIES))
    metrics = [
        single(c.DATABASE_UP, 1),
        *_topics(counts),
        family(c.DIED, _died(died, counts)),
        family(c.STOPPED, [((each.topic,), each.stopped) for each in states]),
        family(c.NOTIFY, [((each,), effective_policy(policies, each)["notify"] != "off") for each in counted]),
        family(c.WORKERS, [((state,), getattr(workers, state)) for state in WORKER_STATES]),
        family(c.TICK_AGE, [((caller,), age_s) for caller, age_s in ticks.items()]),
        single(c.ALERTS, waiting.count),
        single(c.ALERTS_AGE, waiting.oldest_s),
        family(c.CONDITIONS, [((each.kind, each.topic or "", each.severity), 1) for each in conditions]),
        single(c.NOTIFY_QUEUE, await run_async(conn, notify_queue_usage())),
        *_schedules(schedules),
        single(c.EXPORTS_HELD, exports_held),
    ]
    # A value that cannot be read is left out, not 0.
    return metrics if snapshot_s is None else [*metrics, single(c.SNAPSHOT_AGE, snapshot_s)]


async def _conditions(conn: AsyncConnection[Any], topics: Sequence[str]) -> list[OpenCondition]:
    """Read what is wrong: those that are about no topic first, however many topics have some."""
    of_no_topic = await run_async(conn, open_conditions([], MAX_SERIES))
    found = await run_async(conn, open_conditions(topics, MAX_SERIES))
    return [*of_no_topic, *(each for each in found if each.topic is not None)][:MAX_SERIES]


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


def _schedules(schedules: list[RunTimes]) -> Iterator[Metric]:
    """Return when schedules run; what never is has no series."""
    for definition, at in ((c.SCHEDULE_LAST, "last_fired_at"), (c.SCHEDULE_NEXT, "next_tick")):
        times = [((each.name, each.topic), getattr(each, at)) for each in schedules]
        yield family(definition, [(labels, time.timestamp()) for labels, time in times if time is not None])


def _died(died: list[DeadCount], topics: list[TopicStats]) -> list[tuple[tuple[str, str], int]]:
    """Return the counters; those of a topic that is known begin at 0, so that its first death is a rise."""
    counts = {(each.topic, result): 0 for each in topics for result in DEAD}
    counts |= {(each.topic, each.result): each.count for each in died}
    return sorted(counts.items())
