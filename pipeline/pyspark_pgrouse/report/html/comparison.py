"""The part on what got worse: slower, more failures, more cost; and all numbers before and after the mark."""

from __future__ import annotations

from collections.abc import Callable

from pyspark_pgrouse.report.findings import Findings, TopicChange
from pyspark_pgrouse.report.html.formatting import count, duration, hours, moment, rates, share
from pyspark_pgrouse.report.html.markup import Child, Markup, named, tag
from pyspark_pgrouse.report.html.section import card, section
from pyspark_pgrouse.report.html.table import data_table
from pyspark_pgrouse.report.html.trend import failure_trend, trend
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
ALL = "all topics"
DAY_S = 86400
HOURS_FROM_S = 7200


def comparison(findings: Findings) -> Markup | None:
    """Return how topics changed at the mark; None if nothing is compared."""
    if findings.window.mark is None or findings.change is None:
        return None
    lead = f"{_compared(findings.window)} {_new_errors(findings)}"
    return section(
        "changes", "What got worse", lead, _worse(findings), card(tag("h3", "Before and after"), _table(findings))
    )


def before(window: Window) -> str:
    """Return the name of the time before the mark, as the end of a sentence: `before the deploy`."""
    return "before the deploy" if window.is_deploy else f"in the {duration(window.before_s)} before this window"


def _compared(window: Window) -> str:
    assert window.mark is not None  # noqa: S101 - for the type
    if window.is_deploy:
        return f"After the deploy at {moment(window.mark)}, compared with the {duration(window.before_s)} before it."
    return f"This window, compared with the {duration(window.before_s)} before it."


def _new_errors(findings: Findings) -> str:
    errors, when = findings.new_error_groups, before(findings.window)
    if not findings.error_group_count:
        return ""
    if not errors:
        return f"No error is new: each was also seen {when}."
    return (
        f"1 error is new: it was not seen {when}."
        if errors == 1
        else f"{errors:,} errors are new: they were not seen {when}."
    )


def _worse(findings: Findings) -> Markup:
    lists = (
        _list("Slower", "No topic got slower.", findings.slower, _slower),
        _list("More failures", "No topic fails more often.", findings.failing_more, _failing_more),
        _list("More run time", "No topic needs more run time.", findings.costing_more, _costing_more),
    )
    return tag("div", *lists, class_="worse-lists")


def _list(
    title: str, none: str, changes: dict[str, TopicChange], row: Callable[[TopicChange], tuple[Child, Child]]
) -> Markup:
    items = (tag("li", named(topic), *_item(row(change))) for topic, change in changes.items())
    body = tag("ol", *items) if changes else tag("p", none, class_="rest")
    return tag("div", tag("h3", title), body, class_="card")


def _item(said: tuple[Child, Child]) -> tuple[Markup, Markup]:
    values, changed = said
    return tag("span", values, class_="values"), tag("span", changed)


def _slower(change: TopicChange) -> tuple[Child, Child]:
    p50, p99 = ((getattr(change.before.total, p), getattr(change.after.total, p)) for p in ("p50", "p99"))
    name, pair = ("p50", p50) if p50[0] and p50[1] and p50[1] / p50[0] == change.slower else ("p99", p99)
    return f"{name} {duration(pair[0])} \N{RIGHTWARDS ARROW} {duration(pair[1])}", trend(*pair)


def _failing_more(change: TopicChange) -> tuple[Child, Child]:
    rates_ = (change.before.failure_rate, change.after.failure_rate)
    return (
        f"{share(rates_[0])} \N{RIGHTWARDS ARROW} {share(rates_[1])}, {count(round(change.more_dead))} more dead",
        failure_trend(change),
    )


def _costing_more(change: TopicChange) -> tuple[Child, Child]:
    pair = (change.before.busy * DAY_S, change.after.busy * DAY_S)
    # "9d a day" is correct but looks like a mistake.
    show = hours if pair[1] >= HOURS_FROM_S else duration
    return f"{show(pair[0])} \N{RIGHTWARDS ARROW} {show(pair[1])} a day", trend(*pair)


def _table(findings: Findings) -> Markup:
    window = findings.window
    changes = {ALL: findings.change, **findings.changes} if findings.change else findings.changes
    # Rates that stand next to each other are compared: before and after, and one topic with the next.
    counted = rates(
        [
            rate
            for each in changes.values()
            for rate in (each.before.ended / window.before_s, each.after.ended / window.after_s)
        ]
    )
    rows = zip(changes.items(), zip(counted[::2], counted[1::2], strict=True), strict=True)
    return data_table(HEADS, (_row(name, change, ended) for (name, change), ended in rows))


def _row(name: str, change: TopicChange, ended: tuple[str, str]) -> tuple[Child, ...]:
    before_, after = change.before, change.after
    return (
        named(name),
        *ended,
        share(before_.failure_rate),
        share(after.failure_rate),
        failure_trend(change),
        duration(before_.total.p50),
        duration(after.total.p50),
        trend(before_.total.p50, after.total.p50),
        duration(before_.total.p99),
        duration(after.total.p99),
        trend(before_.total.p99, after.total.p99),
    )
