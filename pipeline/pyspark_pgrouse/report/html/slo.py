"""The part on SLOs."""

from __future__ import annotations

from pyspark_pgrouse.report.findings import BurnRate, Findings, SloStatus
from pyspark_pgrouse.report.html.formatting import GAP, NOTHING, count, share, times
from pyspark_pgrouse.report.html.markup import Child, Markup, named, tag
from pyspark_pgrouse.report.html.section import card, section
from pyspark_pgrouse.report.html.sparkline import sparkline
from pyspark_pgrouse.report.html.table import data_table

WARNING = "\N{WARNING SIGN}\N{VARIATION SELECTOR-15}"  # as text, not as a picture


def slo(findings: Findings) -> Markup | None:
    """Return how the SLOs were met and how fast their error budgets burn; None without SLOs."""
    if not findings.slo_statuses:
        return None
    looks = [burn.hours for burn in findings.slo_statuses[0].burn_rates]
    heads = (
        "SLO",
        "target",
        "met by",
        "",
        "messages that missed it",
        *(f"burn rate, {_look(h, h == looks[-1])}" for h in looks),
        "missed over time",
    )
    table = data_table(heads, (_row(each) for each in worst(findings.slo_statuses)))
    lead = (
        "A message meets an SLO if it succeeds within its time, from first due to ended. Burn rate 1 uses up the error budget exactly; "
        "above it the SLO is missed."
    )
    return section("slo", "Service level objectives", lead, card(table))


def worst(slo_statuses: tuple[SloStatus, ...]) -> list[SloStatus]:
    """Return the SLOs; the SLO whose budget burned fastest over the whole window comes first."""
    return sorted(slo_statuses, key=lambda s: -(s.burn_rates[-1].burn_rate or 0.0) if s.burn_rates else 0.0)


def verdict(status: SloStatus) -> Markup | None:
    """Return whether an SLO was met over the whole window, as a text; None if no message ended."""
    met = met_share(status)
    if met is None:
        return None
    return tag("span", "met", class_="better") if met >= status.slo.share else tag("span", "not met", class_="worse")


def met_share(status: SloStatus) -> float | None:
    """Return the share of messages that met an SLO over the whole window; None if no message ended."""
    last = status.burn_rates[-1]
    return last.good / last.ended if last.ended else None


def _look(hours: float, is_last: bool) -> str:
    return "whole window" if is_last else f"last {hours:g}h"


def _row(each: SloStatus) -> tuple[Child, ...]:
    last = each.burn_rates[-1]
    most = max((m for m in each.missed if m is not None), default=None)
    return (
        named(each.slo.goal),
        share(each.slo.share),
        share(met_share(each)),
        verdict(each),
        count(last.ended - last.good),
        *(_burn(burn) for burn in each.burn_rates),
        sparkline(each.missed, f"share that missed {each.slo.goal} over time, at most {share(most)}", "d1"),
    )


def _burn(burn: BurnRate) -> Child:
    if burn.burn_rate is None:
        return NOTHING
    if burn.burn_rate > 1:
        return tag("span", f"{WARNING}{GAP}{times(burn.burn_rate)}", class_="worse")
    return times(burn.burn_rate)
