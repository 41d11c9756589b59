"""What the topics contain, as pages show it: counts and estimates, at a bounded cost."""

from __future__ import annotations

from pgrouse.client.calls.stats import stats
from pgrouse.web.caller import Caller
from pgrouse.web.database_pool import Connection, Row, read_rows


async def read_topic_counts(conn: Connection, caller: Caller) -> list[Row]:
    """Return a row per topic that the caller may see: how many messages are ready, delayed, running and died within a day."""
    rows = await read_rows(conn, stats())
    return [row for row in rows if caller.sees(row["topic"])]
