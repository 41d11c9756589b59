"""The part on throughput."""

from __future__ import annotations

from pyspark_pgrouse.report.findings import Findings
from pyspark_pgrouse.report.html.chart import Chart, Series
from pyspark_pgrouse.report.html.formatting import duration, rate_unit, short
from pyspark_pgrouse.report.html.markup import Markup
from pyspark_pgrouse.report.html.section import section


def throughput(findings: Findings) -> Markup:
    """Return how many messages ended, over time and by topic."""
    bucket_s = findings.window.bucket_s
    made = [(name, counts) for name, counts in findings.throughput.items()]
    if any(findings.others):
        left = findings.topic_count - len(findings.throughput)
        made.append((f"{left:,} other topics" if left > 1 else "other", findings.others))
    unit, times = rate_unit(
        max((sum(counts) for counts in zip(*(c for _, c in made), strict=True)), default=0) / bucket_s
    )
    stacked = [
        Series(name, f"c{(i + 1) % 8}", [n / bucket_s * times for n in counts], short)
        for i, (name, counts) in enumerate(made)
    ]
    chart = Chart(
        f"Messages ended per {unit}, by topic",
        f"Stacked areas of {len(stacked)} topics, one step every {duration(bucket_s)}.",
        findings.window,
        stacked=stacked,
    )
    return section(
        "throughput", "Throughput", f"What ended, with any result. One step is {duration(bucket_s)}.", chart.render()
    )
