"""The metrics of one daemon process, read at each scrape."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from pgrouse.metrics import catalogue as c
from pgrouse.metrics.histogram import BUCKETS
from pgrouse.metrics.prometheus import family, histogram, single
from pgrouse.worker.loop.listener import ListenerMode
from pgrouse.worker.reporting.metrics_recorder import AttemptResult, TopicMetrics

if TYPE_CHECKING:
    from pgrouse.worker.daemon import Daemon


class DaemonCollector(Collector):
    """Reads the recorder and the parts of a daemon. Works on any thread: it reads only counters and sizes."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon

    def collect(self) -> Iterator[Metric]:
        """Yield every metric of DAEMON."""
        self.daemon.metrics.flush()
        by_topic = sorted(self.daemon.metrics.topics.items())
        yield family(c.BUILD_INFO, [((version("pgrouse"), self.daemon.name), 1)])
        yield from _attempts(by_topic)
        yield from self._claims(by_topic)
        yield from self._state()

    def _claims(self, by_topic: list[tuple[str, TopicMetrics]]) -> Iterator[Metric]:
        daemon = self.daemon
        yield family(c.CLAIMS, [((source,), count) for source, count in daemon.metrics.claims.items()])
        yield family(c.CLAIMED, [((source,), count) for source, count in daemon.metrics.claimed_messages.items()])
        yield family(c.MISSED, [((topic,), metrics.missed) for topic, metrics in by_topic])
        yield single(c.LOST, sum(metrics.results[AttemptResult.LOST] for _, metrics in by_topic))
        yield family(c.CONNECTS, [((role,), count) for role, count in sorted(daemon.db.opened.items())])

    def _state(self) -> Iterator[Metric]:
        daemon, health = self.daemon, self.daemon.health
        yield single(c.LISTENER, health.listener_mode is ListenerMode.LISTENING)
        yield single(c.IN_FLIGHT, len(daemon.in_flight))
        yield single(c.RUNNING, daemon.executor.running)
        yield single(c.LIMIT, daemon.executor.concurrency)
        yield single(c.HEARTBEAT_AGE, health.since_seen_s)
        yield single(c.LOOP_LAG, health.loop_monitor.lag_s)
        yield single(c.DRAINING, daemon.runtime.stopping)


def _attempts(by_topic: list[tuple[str, TopicMetrics]]) -> Iterator[Metric]:
    yield family(
        c.MESSAGES,
        [((topic, result), count) for topic, metrics in by_topic for result, count in metrics.results.items()],
    )
    yield histogram(c.WAIT, [((topic,), metrics.waits.counts, metrics.waits.sum_s) for topic, metrics in by_topic])
    yield histogram(c.RUN, [((topic,), metrics.runs.counts, metrics.runs.sum_s) for topic, metrics in by_topic])
    wakes = [metrics.wakes for _, metrics in by_topic]
    counts = [sum(each.counts[nth] for each in wakes) for nth in range(BUCKETS)]
    yield histogram(c.WAKE, [((), counts, sum(each.sum_s for each in wakes))])


def create_registry(daemon: Daemon) -> CollectorRegistry:
    """Return a new registry with the metrics of a daemon and of its process."""
    registry = CollectorRegistry()
    registry.register(DaemonCollector(daemon))
    ProcessCollector(registry=registry)
    return registry
