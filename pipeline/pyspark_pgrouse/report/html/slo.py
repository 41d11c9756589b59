"""The part on SLOs."""

from __future__ import annotations

from pyspark_pgrouse.report.findings import BurnRate, Findings, SloStatus
from pyspark_pgrouse.report.html.formatting import GAP, NOTHING, count, duration, share, times
from pyspark_pgrouse.report.html.markup import Child, Markup, named, tag
from pyspark_pgrouse.report.html.section import card, section
from pyspark_pgrouse.report.html.sparkline import sparkline
from pyspark_pgrouse.report.html.table import data_table
from pyspark_pgrouse.report.html.tiles import worst

WARNING = "\N{WARNING SIGN}\N{VARIATION SELECTOR-15}"  # as text, not as a picture


def slo(findings: Findings) -> Markup | None:
    """Return how the SLOs were met and how fast their error budgets burn; None without SLOs."""
    if not findings.slo_statuses:
        return None
    looks = [burn.hours for burn in findings.slo_statuses[0].burn_rates]
    heads = ("SLO", "met by", "missed", *(f"burn rate, {_look(h, h == looks[-1])}" for h in looks), "missed over time")
    table = data_table(heads, (_row(each) for each in worst(findings.slo_statuses)))
    lead = (
        "An SLO is met by a message that succeeds within its time, from first due to ended. Burn rate 1 uses up the error budget exactly; "
        "above it the SLO is missed."
    )
    return section("slo", "Service level", lead, card(table))


def _look(hours: float, is_last: bool) -> str:
    return "whole window" if is_last else f"last {duration(hours * 3600)}"


def _row(each: SloStatus) -> tuple[Child, ...]:
    last = each.burn_rates[-1]
    met = last.good / last.ended if last.ended else None
    most = max((m for m in each.missed if m is not None), default=None)
    return (
        named(each.slo.name),
        share(met),
        count(last.ended - last.good),
        *(_burn(burn) for burn in each.burn_rates),
        sparkline(each.missed, f"share that missed {each.slo.name} over time, at most {share(most)}"),
    )


def _burn(burn: BurnRate) -> Child:
    if burn.burn_rate is None:
        return NOTHING
    if burn.burn_rate > 1:
        return tag("span", f"{WARNING}{GAP}{times(burn.burn_rate)}", class_="worse")
    return times(burn.burn_rate)
