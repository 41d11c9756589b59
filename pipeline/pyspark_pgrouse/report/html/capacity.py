"""The section on capacity."""

from __future__ import annotations

from pyspark_pgrouse.report.findings import Findings, WorkerLoad
from pyspark_pgrouse.report.html.chart import Chart, Series
from pyspark_pgrouse.report.html.formatting import short
from pyspark_pgrouse.report.html.markup import Child, Markup, named, tag
from pyspark_pgrouse.report.html.section import card, more, section
from pyspark_pgrouse.report.html.table import bar, data_table


def capacity(findings: Findings) -> Markup:
    """Return how many messages were processed at once, in total and by worker."""
    chart = Chart(
        "Messages worked on at once, and workers",
        "An area of the messages that workers held at once, and a line of how many workers held any.",
        findings.window,
        stacked=[Series("messages held", "c1", findings.busy, short)],
        lines=[Series("workers", "ink", findings.workers, short)],
    )
    lead = (
        "By Little's law: the time that messages were held by a worker, divided by the time that passed; earlier attempts included. What had "
        "not ended by the end of the window is not in it, so that the last steps may be too low."
    )
    workers = findings.busiest_workers
    most = max((worker.mean for worker in workers), default=0) or 1
    table = data_table(("worker", "held at once, mean", "", "most"), (_row(worker, most) for worker in workers))
    rest = more(len(workers), findings.worker_count, "capacity")
    return section(
        "capacity", "Capacity", lead, chart.render(), card(tag("h3", "By worker"), table, rest) if workers else None
    )


def _row(worker: WorkerLoad, most: float) -> tuple[Child, ...]:
    return named(worker.name or "(unknown)"), short(worker.mean), bar(worker.mean / most), short(worker.most)
