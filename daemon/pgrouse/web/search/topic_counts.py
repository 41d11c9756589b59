"""What the topics contain, as pages show it: counts and estimates, at a bounded cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgrouse.client.calls.stats import TOPIC_LIMIT, stats
from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import Connection, Row, read_rows


@dataclass(frozen=True)
class VisibleTopics:
    """What the topics contain that a caller may see.

    Attributes:
        rows: one per topic, by name: how many messages are ready, delayed, running and died within a day.
        are_all: false: there may be more topics, and these matter most.
    """

    rows: list[Row]
    are_all: bool


async def read_topic_counts(conn: Connection, caller: Caller, begin: str = "") -> VisibleTopics:
    """Read the topics that the caller may see, whose names begin so."""
    rows = await read_rows(conn, stats(topics=_beginnings(caller.topics, begin)))
    return VisibleTopics([row for row in rows if caller.sees(row["topic"])], len(rows) < TOPIC_LIMIT)


async def read_counts_of(conn: Connection, caller: Caller, topic: str) -> Row | None:
    """Read one topic; None: the caller may not see it, or there is no such topic."""
    rows = await read_rows(conn, stats(topics=[topic])) if caller.sees(topic) else []
    return next((row for row in rows if row["topic"] == topic), None)


def _beginnings(patterns: Sequence[str], begin: str) -> list[str]:
    """Return the patterns of topics that fit some pattern and begin so."""
    longer = [each for each in patterns if each.startswith(begin)]
    is_wanted = any(each.endswith("*") and begin.startswith(each[:-1]) for each in patterns)
    return [*longer, f"{begin}*"] if is_wanted else longer
