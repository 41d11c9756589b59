"""Reports a daemon's metrics to the database: every few seconds the difference to the previous report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pgrouse.worker.reporting.metrics_recorder import MetricsRecorder, TopicMetrics

Sums = dict[str, int | list[int]]


@dataclass(frozen=True, slots=True)
class MetricsReport:
    """One report.

    Attributes:
        number: increasing; the database accepts each number once.
        measures: the argument of messages.worker_measured, as JSON.
    """

    number: int
    measures: str


class MetricsReporter:
    """Creates the reports of one daemon. Used by one thread.

    If the answer to a report is lost, it is unknown whether the report arrived, so the same report is sent again and
    counted once. If the daemon dies, the measurements since its last report are lost.
    """

    def __init__(self, metrics: MetricsRecorder) -> None:
        self.metrics = metrics
        self._number = 0
        self._pending: MetricsReport | None = None
        self._last_sums: dict[str, Sums] = {}

    @property
    def has_pending(self) -> bool:
        """Whether a report has not been acknowledged."""
        return self._pending is not None

    def next(self) -> MetricsReport | None:
        """Return the report to send: the pending one, or else a new one; None if nothing has changed."""
        if self._pending is None:
            self._pending = self._make()
        return self._pending

    def acknowledged(self) -> None:
        """The database has accepted the report."""
        self._pending = None

    def _make(self) -> MetricsReport | None:
        self.metrics.flush()
        now = {topic: _sums(metrics) for topic, metrics in list(self.metrics.topics.items())}
        measures = [
            {"topic": topic, **increase}
            for topic, sums in now.items()
            if (increase := _increase(sums, self._last_sums.get(topic)))
        ]
        if not measures:
            return None
        self._last_sums = now
        self._number += 1
        return MetricsReport(self._number, json.dumps(measures))


def _sums(metrics: TopicMetrics) -> Sums:
    return {
        **{result.value: count for result, count in metrics.results.items()},
        "waits": list(metrics.waits.counts),
        "runs": list(metrics.runs.counts),
        "wakes": list(metrics.wakes.counts),
    }


def _increase(sums: Sums, before: Sums | None) -> dict[str, Any]:
    """Return the increase per column: a number, or for a histogram the buckets that have grown."""
    increase: dict[str, Any] = {}
    for name, now in sums.items():
        was = None if before is None else before[name]
        if isinstance(now, list):
            olds = was if isinstance(was, list) else [0] * len(now)
            more: Any = {nth: new - old for nth, (new, old) in enumerate(zip(now, olds, strict=True), 1) if new != old}
        else:
            more = now - (was if isinstance(was, int) else 0)
        if more:
            increase[name] = more
    return increase
