"""The part on what is new since the mark."""

from __future__ import annotations

from pyspark_pgrouse.report.findings import Change, Findings
from pyspark_pgrouse.report.html.markup import Child, Markup, named
from pyspark_pgrouse.report.html.quantity import duration, moment, rate, share, span
from pyspark_pgrouse.report.html.section import card, section
from pyspark_pgrouse.report.html.table import data_table
from pyspark_pgrouse.report.html.tiles import failure_trend, trend
from pyspark_pgrouse.report.window import Window

HEADS = (
    "topic",
    "ended before",
    "after",
    "failures before",
    "after",
    "",
    "p50 before",
    "after",
    "",
    "p99 before",
    "after",
    "",
)


def comparison(findings: Findings) -> Markup | None:
    """Return how topics changed at the mark; None if nothing is compared."""
    if findings.window.mark is None or findings.change is None:
        return None
    window = findings.window
    changes = {"all topics": findings.change, **findings.changes}
    table = data_table(HEADS, (_row(name, change, window) for name, change in changes.items()))
    fresh = findings.new_faults
    errors = "No error is new" if not fresh else "1 error is new" if fresh == 1 else f"{fresh:,} errors are new"
    lead = f"{_compared(window)} {errors}: never seen before the mark."
    return section("changes", "What changed", lead, card(table))


def _compared(window: Window) -> str:
    assert window.mark is not None  # noqa: S101 - for the type
    if window.is_deploy:
        return f"After the deploy at {moment(window.mark)}, compared with the {span(window.before_s)} before it in this window."
    return f"This window, compared with the {span(window.before_s)} before it."


def _row(name: str, change: Change, window: Window) -> tuple[Child, ...]:
    before, after = change.before, change.after
    return (
        named(name),
        rate(before.ended / window.before_s),
        rate(after.ended / window.after_s),
        share(before.failure_rate),
        share(after.failure_rate),
        failure_trend(change),
        duration(before.total.p50),
        duration(after.total.p50),
        trend(before.total.p50, after.total.p50),
        duration(before.total.p99),
        duration(after.total.p99),
        trend(before.total.p99, after.total.p99),
    )
