"""The runs that the handlers of a fleet recorded by the clock of the database, and what they prove."""

from __future__ import annotations

from statistics import median
from typing import Any

from tests.server.deadline import eventually
from tests.sql.queue import Queue, Row

TABLE = """
    CREATE TABLE run (
      nth bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id bigint, topic text, channel text, pid integer,
      started timestamptz DEFAULT clock_timestamp(), ended timestamptz)
"""
# How many ran at the start of each run, including that one.
MOST_AT_ONCE = """
    SELECT max((
      SELECT count(*) FROM run AS o
      WHERE o.topic = r.topic AND (%(channel)s::text IS NULL OR o.channel = r.channel)
        AND o.started <= r.started AND coalesce(o.ended, 'infinity') > r.started))
    FROM run AS r WHERE r.topic = %(topic)s AND (%(channel)s::text IS NULL OR r.channel = %(channel)s)
"""

# Between two runs of a slot lie the record of an end, a settle, a notification with its claim, and the record of a
# start; on a slow machine each takes as long as a probe from its publish to its claim. A lost notification takes much
# longer: until the next poll.
STEPS_OF_A_PAUSE = 5


class Runs:
    """The runs of one test.

    Args:
        queue: a connection to the database of the fleet.
    """

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        queue.conn.execute(TABLE)

    def rows(self, channel: str | None = None) -> list[Row]:
        """Return the runs, first started first."""
        return self.queue.rows(
            """
            SELECT id, topic, channel, pid, extract(epoch FROM started)::float AS started,
                   extract(epoch FROM ended)::float AS ended
            FROM run WHERE %s::text IS NULL OR channel = %s ORDER BY run.started, nth
            """,
            [channel, channel],
        )

    def most_at_once(self, topic: str = "job", channel: str | None = None) -> int:
        """Return the maximum number of concurrent runs."""
        return int(self.queue.value(MOST_AT_ONCE, {"topic": topic, "channel": channel}))

    def until_done(self) -> float:
        """Wait for the end of all messages; return the longest wait of others for their claim, in seconds.

        These others, one each moment, have no limit: so a slow machine delays them as it delays those of the test.
        """
        eventually(self._is_done, within_s=60)
        eventually(lambda: self.queue.ids() == [])
        waited = """
            SELECT extract(epoch FROM max(locked_at - created_at))
            FROM messages.message_archive WHERE topic = 'probe'
        """
        return float(self.queue.value(waited))

    def _is_done(self) -> bool:
        self.queue.publish("probe", payload={})
        return bool(self.queue.value("SELECT NOT EXISTS (SELECT FROM messages.message WHERE topic <> 'probe')"))

    def pause(self, slots: int, channel: str | None = None) -> float:
        """Return how long one of these slots was usually empty, in seconds: there are rare pauses of the machine."""
        rows = self.rows(channel)
        ended, started = sorted(run.ended for run in rows), [run.started for run in rows]
        return float(median(after - before for before, after in zip(ended, started[slots:], strict=False)))

    def claimed_at(self, channel: str | None = None) -> list[float]:
        """Return the times of the last claims of the archived messages, in this order."""
        statement = """
            SELECT extract(epoch FROM locked_at)::float AS at FROM messages.message_archive
            WHERE %s::text IS NULL OR channel = %s ORDER BY 1
        """
        return [row.at for row in self.queue.rows(statement, [channel, channel])]

    def pids(self) -> set[Any]:
        """Return the processes that ran a message."""
        return {row.pid for row in self.rows()}
