"""The part on throughput."""

from __future__ import annotations

from pyspark_pgrouse.report.findings import Findings
from pyspark_pgrouse.report.html.chart import Chart, Series
from pyspark_pgrouse.report.html.formatting import duration, rate
from pyspark_pgrouse.report.html.markup import Markup
from pyspark_pgrouse.report.html.section import section


def throughput(findings: Findings) -> Markup:
    """Return how much ended, over time and by topic."""
    per_s = findings.window.bucket_s
    stacked = [
        Series(name, f"c{i + 1}", [n / per_s for n in counts], rate)
        for i, (name, counts) in enumerate(findings.throughput.items())
    ]
    if any(findings.others):
        left = findings.topic_count - len(findings.throughput)
        stacked.append(
            Series(f"{left:,} other topics" if left > 1 else "other", "c0", [n / per_s for n in findings.others], rate)
        )
    chart = Chart(
        "throughput",
        "Messages ended per second, by topic",
        f"Stacked areas of {len(stacked)} topics, one step every {duration(per_s)}.",
        findings.window,
        stacked=stacked,
    )
    return section(
        "throughput", "Throughput", f"What ended, with any result. One step is {duration(per_s)}.", chart.render()
    )
