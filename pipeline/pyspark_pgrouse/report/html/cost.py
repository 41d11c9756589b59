"""The section on cost: how much time of the workers the messages of a topic use."""

from __future__ import annotations

from pyspark_pgrouse.report.findings import Findings, TopicCost
from pyspark_pgrouse.report.html.formatting import count, duration, hours, share, short
from pyspark_pgrouse.report.html.markup import Child, Markup, named, tag
from pyspark_pgrouse.report.html.section import card, more, section
from pyspark_pgrouse.report.html.table import bar, data_table

HEADS = ("topic", "run time", "", "of all", "in failed attempts", "retries", "messages", "run time per message")


def cost(findings: Findings) -> Markup:
    """Return the topics with the most run time."""
    whole = findings.cost
    lead = (
        f"Workers ran {hours(whole.run_s)} in all, {_part(whole.failed_run_s, whole.run_s)} of it in attempts that did not succeed. "
        f"Run time is the time from claimed to ended of every attempt; {count(whole.retries)} attempts were retries."
    )
    table = data_table(HEADS, (_row(name, each, whole) for name, each in findings.costs.items()))
    rest = more(len(findings.costs), findings.topic_count, "cost")
    return section("cost", "What costs most", lead, card(tag("h3", "Topics with the most run time"), table, rest))


def _row(name: str, each: TopicCost, whole: TopicCost) -> tuple[Child, ...]:
    return (
        named(name),
        hours(each.run_s),
        bar(each.run_s / whole.run_s if whole.run_s else 0.0),
        _part(each.run_s, whole.run_s),
        _part(each.failed_run_s, each.run_s),
        count(each.retries),
        short(each.messages),
        duration(each.run_s / each.messages if each.messages else None),
    )


def _part(some: float, of: float) -> str:
    return share(some / of if of else None)
