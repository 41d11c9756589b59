"""Metrics of the catalogue as prometheus_client metric families."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from pgrouse.metrics.catalogue import MetricDefinition, MetricKind
from pgrouse.metrics.histogram import BOUNDS_S

# Every second bound: they grow by 2, from 0.0002 s to 839 s.
SHOWN = range(1, len(BOUNDS_S), 2)

Values = Iterable[tuple[Sequence[str], float]]


def family(metric: MetricDefinition, values: Values) -> CounterMetricFamily | GaugeMetricFamily:
    """Return a counter or gauge: for each series the values of its labels, and its own."""
    kind = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
    made = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in values:
        made.add_metric(labels, value)
    return made


def single(metric: MetricDefinition, value: float) -> CounterMetricFamily | GaugeMetricFamily:
    """Return a counter or gauge that has one series."""
    return family(metric, [((), value)])


def histogram(
    metric: MetricDefinition, values: Iterable[tuple[Sequence[str], Sequence[int], float]]
) -> HistogramMetricFamily:
    """Return a histogram: for each series the values of its labels, its counts by bucket, and the sum in seconds."""
    made = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, counts, sum_s in values:
        up_to = list(accumulate(counts))
        shown = [(str(BOUNDS_S[nth]), up_to[nth]) for nth in SHOWN]
        made.add_metric(labels, [*shown, ("+Inf", up_to[-1])], sum_s)
    return made
