"""What the topics contain, as pages show it: bounded counts, never more."""

from __future__ import annotations

from pgrouse.client.calls.stats import stats
from pgrouse.web.caller import Caller
from pgrouse.web.database_pool import Connection, Row, read_rows

# The counts of a topic stop here, and then mean "at least". Lists count every topic, each second while a page is open: 10 ms for 20 large ones.
MAX_COUNT = 1000


async def read_topic_counts(conn: Connection, caller: Caller) -> list[Row]:
    """Return a row per topic that the caller may see: how many messages are ready, delayed, running and died within a day."""
    rows = await read_rows(conn, stats(MAX_COUNT))
    return [row for row in rows if caller.sees(row["topic"])]
