"""What stands in the topics, as pages show it: bounded counts, never more."""

from __future__ import annotations

from pgrouse.web.caller import Caller
from pgrouse.web.database import Connection, Row

# Counts stop here, and then mean "at least". Lists count every topic, each second while somebody looks: 10 ms for 20 large ones.
BOUND = 1000
STATS = b"""
  SELECT s.topic, s.ready, s.delayed, s.running, s.dead_last_day, s.oldest_ready_s, s.handled FROM messages.stats(%s) AS s"""


async def standing(conn: Connection, caller: Caller) -> list[Row]:
    """Return a row per topic that the caller may see: how many messages are ready, delayed, running and died within a day.

    `dead_is_least`: the dead of all topics were too many to count, each topic has at least so many.
    """
    rows = await (await conn.execute(STATS, [BOUND])).fetchall()
    dead_is_least = sum(row["dead_last_day"] for row in rows) >= BOUND
    return [row | {"dead_is_least": dead_is_least} for row in rows if caller.sees(row["topic"])]
