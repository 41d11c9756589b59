"""The part on latency."""

from __future__ import annotations

from pyspark_pgrouse.report.findings import Findings, TopicTotals
from pyspark_pgrouse.report.html.chart import DURATIONS, Chart, Series
from pyspark_pgrouse.report.html.formatting import duration, short
from pyspark_pgrouse.report.html.markup import Child, Markup, named, tag
from pyspark_pgrouse.report.html.section import card, more, section
from pyspark_pgrouse.report.html.sparkline import sparkline
from pyspark_pgrouse.report.html.table import data_table

HEADS = ("topic", "messages", "wait p50", "p99", "run p50", "p99", "total p50", "p95", "p99", "total p99 over time")


def latency(findings: Findings) -> Markup:
    """Return how long messages took, over time and by topic."""
    names = ("p50", "p95", "p99")
    lines = [
        Series(name, f"o{i + 1}", [getattr(p, name) for p in findings.latency], duration)
        for i, name in enumerate(names)
    ]
    chart = Chart(
        "Total time of all messages (log scale)",
        "Lines of the percentiles 50, 95 and 99 of the total time, on a logarithmic axis.",
        findings.window,
        lines=lines[::-1],
        labels=DURATIONS,
        log=True,
    )
    lead = (
        "Wait: from due to claimed, of the last attempt. Run: from claimed to ended. Total: from first due to ended, retries included. "
        "Cancelled messages do not count."
    )
    table = data_table(HEADS, (_row(name, t) for name, t in findings.topics.items()))
    rest = more(len(findings.topics), findings.topic_count, "latency_by_topic")
    return section("latency", "Latency", lead, chart.render(), card(tag("h3", "By topic"), table, rest))


def _row(name: str, total: TopicTotals) -> tuple[Child, ...]:
    most = max((v for v in total.trend if v is not None), default=None)
    return (
        named(name),
        short(total.ended),
        duration(total.wait.p50),
        duration(total.wait.p99),
        duration(total.run.p50),
        duration(total.run.p99),
        duration(total.total.p50),
        duration(total.total.p95),
        duration(total.total.p99),
        sparkline(total.trend, f"p99 of the total time of {name} over time, at most {duration(most)}"),
    )
