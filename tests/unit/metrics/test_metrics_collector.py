"""What the metrics of a daemon are read from."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from pgrouse.client.message import Message
from pgrouse.metrics import catalogue
from pgrouse.worker.metrics_collector import DaemonCollector
from pgrouse.worker.reporting.metrics_recorder import AttemptResult, MetricsRecorder


def test_lost_locks_are_those_of_all_topics(claimed: Callable[..., Message]) -> None:
    metrics = MetricsRecorder()
    metrics.record_end([claimed(topic=topic) for topic in ("a", "a", "b")], AttemptResult.LOST)
    daemon: Any = SimpleNamespace(metrics=metrics, name="w", db=SimpleNamespace(opened={}))

    # The metrics after them are about the other parts of a daemon.
    samples = (sample for metric in DaemonCollector(daemon).collect() for sample in metric.samples)
    lost = next(sample for sample in samples if sample.name == catalogue.LOST.name)

    assert lost.value == 3
