"""The part on attempts."""

from __future__ import annotations

from pyspark_pgrouse.report.findings import MOST_ATTEMPTS, AttemptCount, Findings
from pyspark_pgrouse.report.html.formatting import count, share
from pyspark_pgrouse.report.html.markup import Child, Markup, tag
from pyspark_pgrouse.report.html.section import card, section
from pyspark_pgrouse.report.html.table import bar, data_table


def retries(findings: Findings) -> Markup:
    """Return how many attempts messages took."""
    rows = sorted(findings.attempts, key=lambda row: row.attempts)
    ended = sum(row.messages for row in rows)
    again = [row for row in rows if row.attempts > 1]
    part = share(sum(row.messages for row in again) / ended) if ended else "none"
    if not again:
        return section("retries", "Retries", "No message was tried more than once.")
    widest = max(row.messages for row in again)
    table = data_table(("attempts", "messages", "", "of all", "dead"), (_row(row, ended, widest) for row in rows))
    lead = f"{part} of the messages took more than one attempt. Bars compare those only."
    return section("retries", "Retries", lead, card(tag("h3", "Messages by attempts"), table))


def _row(row: AttemptCount, ended: int, widest: int) -> tuple[Child, ...]:
    name = (
        "never claimed"
        if row.attempts == 0
        else f"{MOST_ATTEMPTS} or more"
        if row.attempts == MOST_ATTEMPTS
        else str(row.attempts)
    )
    drawn = bar(row.messages / widest) if row.attempts > 1 else None
    return name, count(row.messages), drawn, share(row.messages / ended), count(row.dead)
