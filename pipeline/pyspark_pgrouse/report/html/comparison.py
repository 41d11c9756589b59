"""The part on what is new since the mark."""

from __future__ import annotations

from pyspark_pgrouse.report.findings import Findings, TopicChange
from pyspark_pgrouse.report.html.formatting import duration, moment, rates, share
from pyspark_pgrouse.report.html.markup import Child, Markup, named
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
    # What is side by side is compared: before and after, and one topic with the next.
    counted = rates(
        [
            rate
            for each in changes.values()
            for rate in (each.before.ended / window.before_s, each.after.ended / window.after_s)
        ]
    )
    rows = zip(changes.items(), zip(counted[::2], counted[1::2], strict=True), strict=True)
    table = data_table(HEADS, (_row(name, change, ended) for (name, change), ended in rows))
    return section("changes", "What changed", f"{_compared(window)} {_fresh(findings.new_error_groups)}", card(table))


def _fresh(errors: int) -> str:
    if not errors:
        return "No error is new: each was seen before the mark."
    return f"{'1 error is' if errors == 1 else f'{errors:,} errors are'} new: never seen before the mark."


def _compared(window: Window) -> str:
    assert window.mark is not None  # noqa: S101 - for the type
    if window.is_deploy:
        return f"After the deploy at {moment(window.mark)}, compared with the {duration(window.before_s)} before it in this window."
    return f"This window, compared with the {duration(window.before_s)} before it."


def _row(name: str, change: TopicChange, ended: tuple[str, str]) -> tuple[Child, ...]:
    before, after = change.before, change.after
    return (
        named(name),
        *ended,
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
