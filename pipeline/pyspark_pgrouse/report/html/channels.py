"""The part on channels."""

from __future__ import annotations

from pyspark_pgrouse.report.findings import ChannelSkew, Findings
from pyspark_pgrouse.report.html.formatting import count, share, short, times
from pyspark_pgrouse.report.html.markup import Child, Markup, join, named, tag
from pyspark_pgrouse.report.html.section import card, more, section
from pyspark_pgrouse.report.html.table import data_table

HEADS = ("topic", "largest channels", "channels", "messages", "largest / mean", "Gini")


def channels(findings: Findings) -> Markup | None:
    """Return how topics are spread over their channels; None if no message had one."""
    if not findings.skews:
        return None
    table = data_table(HEADS, (_row(skew) for skew in findings.skews), texts=2)
    lead = "Whether few channels make most of a topic. Gini: 0 = all channels alike, towards 1 = one has everything."
    rest = more(len(findings.skews), findings.skew_count, "skew")
    return section("channels", "Channels", lead, card(table, rest))


def _row(skew: ChannelSkew) -> tuple[Child, ...]:
    return (
        named(skew.topic),
        tag("div", _strip(skew), _named(skew)),
        count(skew.channels),
        short(skew.messages),
        times(skew.max_over_mean),
        f"{skew.gini:.2f}",
    )


def _strip(skew: ChannelSkew) -> Markup:
    """Return one bar for the topic: its largest channels, and the rest."""
    parts = (
        tag("i", class_=f"c{i + 1}", style=f"width:{n / skew.messages * 100:.3g}%") for i, (_, n) in enumerate(skew.top)
    )
    return tag("span", *parts, class_="bar strip", aria_hidden="true")


def _named(skew: ChannelSkew) -> Markup:
    names = (
        join(
            [
                tag("i", class_=f"dot c{i + 1}"),
                tag("span", name, class_="name", title=name),
                f" {share(n / skew.messages)}",
            ]
        )
        for i, (name, n) in enumerate(skew.top[:3])
    )
    return tag("small", *(tag("span", each, class_="channel") for each in names))
