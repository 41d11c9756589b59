"""What stands in the topics, as pages show it: bounded counts, never more."""

from __future__ import annotations

from pgrouse.web.caller import Caller
from pgrouse.web.database_pool import Connection, Row

# The counts of a topic stop here, and then mean "at least". Lists count every topic, each second while somebody looks: 10 ms for 20 large ones.
MAX_COUNT = 1000
STATS = b"""
  SELECT s.topic, s.ready, s.delayed, s.running, s.dead_last_day, s.oldest_ready_s, s.handled FROM messages.stats(%s) AS s"""


async def read_topic_counts(conn: Connection, caller: Caller) -> list[Row]:
    """Return a row per topic that the caller may see: how many messages are ready, delayed, running and died within a day."""
    rows = await (await conn.execute(STATS, [MAX_COUNT])).fetchall()
    return [row for row in rows if caller.sees(row["topic"])]
