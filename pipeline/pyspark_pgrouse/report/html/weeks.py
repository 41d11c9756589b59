"""The part on weeks: the same topics, week by week."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from pyspark_pgrouse.report.findings import (
    ENOUGH_P99,
    NOTICEABLE,
    Findings,
    SloStatus,
    WeekTotals,
    is_failure_rate_changed,
)
from pyspark_pgrouse.report.html.formatting import GAP, NOTHING, duration, share, short
from pyspark_pgrouse.report.html.markup import Child, Markup, named, tag
from pyspark_pgrouse.report.html.section import card, section
from pyspark_pgrouse.report.html.slo import WARNING
from pyspark_pgrouse.report.html.table import grouped_table
from pyspark_pgrouse.report.window import WEEK

GROUPS = ("messages", "failure rate", "total time, p99", "run time, hours", "retries")
UP, DOWN = "\N{BLACK UP-POINTING TRIANGLE}", "\N{BLACK DOWN-POINTING TRIANGLE}"


def weeks(findings: Findings) -> Markup | None:
    """Return each topic by week; None if fewer than two whole weeks were read."""
    if len(findings.weeks) < 2:  # noqa: PLR2004
        return None
    heads = [_name(week) for week in findings.weeks]
    lead = (
        "A week is seven days, counted back from the end of the window, and is named by its last day. "
        f"{UP} and {DOWN} mark a last week that is a tenth or more above or below the one before, if that is hardly chance."
    )
    return section("weeks", "By week", lead, _topics(heads, findings), _slos(heads, findings.slo_statuses))


def _topics(heads: Sequence[str], findings: Findings) -> Markup:
    rows = (_row(topic, totals) for topic, totals in findings.week_totals.items())
    table = grouped_table("topic", dict.fromkeys(GROUPS, heads), rows)
    return card(tag("h3", "Topics with the most run time"), table)


def _slos(heads: Sequence[str], statuses: Sequence[SloStatus]) -> Markup | None:
    if not statuses:
        return None
    rows = (
        (named(each.slo.goal), share(each.slo.share), *(_met(each, met) for met in each.weeks)) for each in statuses
    )
    note = tag("p", f"{WARNING} marks a week below the target.", class_="rest")
    return card(
        tag("h3", "Share of messages that met each SLO"),
        grouped_table("SLO", {"target": [""], "met by": heads}, rows),
        note,
    )


def _met(status: SloStatus, met: float | None) -> Child:
    """Return the share that met an SLO, with a sign if that is less than its target."""
    if met is not None and met < status.slo.share:
        return tag("span", f"{WARNING}{GAP}{share(met)}", class_="worse")
    return share(met)


def _row(topic: str, totals: Sequence[WeekTotals | None]) -> tuple[Child, ...]:
    before, last = totals[-2:]
    known = before is not None and last is not None
    return (
        named(topic or "all topics"),
        *_cells(totals, lambda w: w.ended, short),
        *_cells(totals, lambda w: w.failure_rate, share, marked=_is_failure_rate_sure(before, last)),
        *_cells(totals, lambda w: w.p99_s, duration, marked=_is_p99_sure(before, last)),
        *_cells(totals, lambda w: w.run_s / 3600, short, marked=known),
        *_cells(totals, lambda w: w.retries, short, marked=known),
    )


def _is_failure_rate_sure(before: WeekTotals | None, last: WeekTotals | None) -> bool:
    return before is not None and last is not None and is_failure_rate_changed(before, last)


def _is_p99_sure(before: WeekTotals | None, last: WeekTotals | None) -> bool:
    return before is not None and last is not None and min(before.counted, last.counted) >= ENOUGH_P99


def _cells(
    totals: Sequence[WeekTotals | None],
    value: Callable[[WeekTotals], float | None],
    show: Callable[[float], str],
    *,
    marked: bool = False,
) -> list[Child]:
    values = [None if week is None else value(week) for week in totals]
    written: list[Child] = [NOTHING if v is None else show(v) for v in values]
    if marked:
        written[-1] = _marked(str(written[-1]), values[-2], values[-1])
    return written


def _marked(written: str, before: float | None, last: float | None) -> Child:
    """Return the value of the last week.

    It has a sign if it is noticeably above or below the value of the week before.
    """
    if before is None or last is None or abs(last - before) <= NOTICEABLE * before:
        return written
    sign, colour = (UP, "worse") if last > before else (DOWN, "better")
    return tag("span", f"{sign}{GAP}{written}", class_=colour)


def _name(week: datetime) -> str:
    last = week + WEEK - timedelta(microseconds=1)
    return f"{last.day}\N{NO-BREAK SPACE}{last:%b}"
