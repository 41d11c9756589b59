"""The metrics of one daemon process, read when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from pgrouse.worker.listener import Mode
from pgrouse.worker.metrics_recorder import BUCKETS, Meter, Result
from pgrouse.metrics import catalogue as c
from pgrouse.metrics.prometheus import family, histogram, single

if TYPE_CHECKING:
    from pgrouse.worker.daemon import Daemon


class DaemonCollector(Collector):
    """Reads the meters and the parts of a daemon. On any thread: what it reads are numbers that only grow, and sizes."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon

    def collect(self) -> Iterator[Metric]:
        """Yield every metric of DAEMON."""
        self.daemon.meters.sort_in()
        meters = sorted(self.daemon.meters.topics.items())
        yield family(c.BUILD_INFO, [((version("pgrouse"), self.daemon.name), 1)])
        yield from _attempts(meters)
        yield from self._claims(meters)
        yield from self._state()

    def _claims(self, meters: list[tuple[str, Meter]]) -> Iterator[Metric]:
        daemon = self.daemon
        yield family(c.CLAIMS, [((source,), count) for source, count in daemon.meters.claims.items()])
        yield family(c.CLAIMED, [((source,), count) for source, count in daemon.meters.found.items()])
        yield family(c.MISSED, [((topic,), meter.missed) for topic, meter in meters])
        yield single(c.LOST, sum(meter.results[Result.LOST] for _, meter in meters))
        yield family(c.CONNECTS, [((role,), count) for role, count in sorted(daemon.db.opened.items())])

    def _state(self) -> Iterator[Metric]:
        daemon, vitals = self.daemon, self.daemon.vitals
        yield single(c.LISTENER, vitals.hearing is Mode.LISTENING)
        yield single(c.IN_FLIGHT, len(daemon.hand))
        yield single(c.RUNNING, daemon.crew.running)
        yield single(c.LIMIT, daemon.settings.worker.concurrency)
        yield single(c.HEARTBEAT_AGE, vitals.silent_s)
        yield single(c.LOOP_LAG, vitals.pulse.lag_s)
        yield single(c.DRAINING, daemon.scene.stopping)


def _attempts(meters: list[tuple[str, Meter]]) -> Iterator[Metric]:
    yield family(
        c.MESSAGES,
        [((topic, result), count) for topic, meter in meters for result, count in meter.results.items()],
    )
    yield histogram(c.WAIT, [((topic,), meter.waits.counts, meter.waits.sum_s) for topic, meter in meters])
    yield histogram(c.RUN, [((topic,), meter.runs.counts, meter.runs.sum_s) for topic, meter in meters])
    wakes = [meter.wakes for _, meter in meters]
    counts = [sum(each.counts[nth] for each in wakes) for nth in range(BUCKETS)]
    yield histogram(c.WAKE, [((), counts, sum(each.sum_s for each in wakes))])


def registry_of(daemon: Daemon) -> CollectorRegistry:
    """Return a registry of its own for a daemon: its metrics, and those of its process."""
    registry = CollectorRegistry()
    registry.register(DaemonCollector(daemon))
    ProcessCollector(registry=registry)
    return registry
