"""The section on failures."""

from __future__ import annotations

from pgrouse.error_line import error_line
from pyspark_pgrouse.report.findings import ErrorGroup, Findings, TopicTotals
from pyspark_pgrouse.report.html.chart import Chart, Series
from pyspark_pgrouse.report.html.comparison import before
from pyspark_pgrouse.report.html.formatting import count, duration, moment, share, short
from pyspark_pgrouse.report.html.markup import Child, Markup, named, tag
from pyspark_pgrouse.report.html.section import card, more, section
from pyspark_pgrouse.report.html.sparkline import sparkline
from pyspark_pgrouse.report.html.table import bar, data_table

COLOURS = {"failed": "d1", "rejected": "d2", "lock_expired": "d3", "expired": "d4"}
LINE = 300
HEADS = ("topic", "failure rate", "", "dead", "messages")


def failures(findings: Findings) -> Markup:
    """Return dead messages over time, the topics that fail most, and the errors."""
    if not findings.whole.dead:
        return section("failures", "Failures", "No message died in this window.")
    stacked = [
        Series(result, colour, findings.deaths[result], short)
        for result, colour in COLOURS.items()
        if any(findings.deaths.get(result, ()))
    ]
    chart = Chart(
        f"Dead messages per {duration(findings.window.bucket_s)}, by result",
        "Stacked areas of the results that are neither success nor cancelled.",
        findings.window,
        stacked=stacked,
        whole=True,
    )
    lead = f"{count(findings.whole.dead)} messages died: {share(findings.whole.failure_rate)} of those that were not cancelled."
    return section("failures", "Failures", lead, chart.render(), _by_topic(findings), _error_groups(findings))


def _by_topic(findings: Findings) -> Markup:
    failing = sorted(findings.failing.items(), key=lambda item: -(item[1].failure_rate or 0))
    most = max((t.failure_rate or 0 for _, t in failing), default=0) or 1
    table = data_table(HEADS, (_row(name, t, most) for name, t in failing))
    rest = more(len(failing), findings.failing_count, "failures")
    return card(tag("h3", "Topics with the most dead messages, by failure rate"), table, rest)


def _row(name: str, total: TopicTotals, most: float) -> tuple[Child, ...]:
    failed = total.failure_rate or 0
    return named(name), share(failed), bar(failed / most, "d1"), count(total.dead), short(total.ended)


def _error_groups(findings: Findings) -> Markup:
    items = (_error_group(findings, error_group) for error_group in findings.error_groups)
    lead = tag(
        "p",
        "Grouped by fingerprint: errors that differ only in numbers, ids and quoted strings are one.",
        class_="lead",
    )
    rest = more(len(findings.error_groups), findings.error_group_count, "fingerprints")
    return tag("div", tag("h3", "Errors"), lead, tag("ol", *items, class_="error-groups"), rest, class_="card")


def _error_group(findings: Findings, error_group: ErrorGroup) -> Markup:
    compared = findings.window.mark is not None
    badge = (
        tag("b", "NEW", class_="new", title=f"not seen {before(findings.window)}")
        if compared and error_group.is_new
        else None
    )
    error = (error_group.error or f"({error_group.result}, without an error)").strip()
    line = error_line(error)
    facts = " \N{MIDDLE DOT} ".join(
        [
            f"first {moment(error_group.first_seen)}",
            f"last {moment(error_group.last_seen)}",
            *([f"{count(error_group.before)} {before(findings.window)}"] if compared else []),
            f"newest: message {error_group.sample_id}",
            f"fingerprint {error_group.fingerprint}",
        ]
    )
    trace = tag("details", tag("summary", "Whole error"), tag("pre", error)) if error != line else None
    return tag(
        "li",
        tag(
            "div",
            tag("strong", short(error_group.messages)),
            badge,
            named(error_group.topic),
            tag("i", error_group.result),
            class_="who",
        ),
        sparkline(
            error_group.trend, f"dead messages over time, at most {count(max(error_group.trend, default=0))}", "d1"
        ),
        tag("code", line if len(line) <= LINE else f"{line[:LINE]}\N{HORIZONTAL ELLIPSIS}", class_="error"),
        tag("small", facts),
        trace,
    )
