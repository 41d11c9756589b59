"""Why topics stand still: a pause, or an open breaker."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pgrouse.web.database_pool import Connection

PAUSED_TOPICS = b"""
  SELECT t.topic, t.paused_at, t.resume_at, t.paused_by, t.paused_reason, NULL::timestamptz AS probe_at, NULL AS breaker_why
  FROM messages.topic AS t
  WHERE t.paused_at IS NOT NULL AND (t.resume_at IS NULL OR t.resume_at > messages.now())
  UNION ALL
  SELECT b.topic, NULL, NULL, NULL, NULL, b.probe_at, b.reason
  FROM messages.breaker AS b
  JOIN messages.topic AS d ON d.topic = '*'
  LEFT JOIN messages.topic AS t ON t.topic = b.topic
  WHERE b.position = 'open' AND coalesce(t.breaker, d.breaker) IS NOT NULL"""


@dataclass
class PausedTopic:
    """Why one topic is stopped.

    Attributes:
        paused_at: since when it is paused; None = it is not paused.
        probe_at: when its open breaker tries again; None = it is not open.
    """

    paused_at: datetime | None = None
    resume_at: datetime | None = None
    paused_by: str | None = None
    paused_reason: str | None = None
    probe_at: datetime | None = None
    breaker_why: str | None = None


async def read_paused_topics(conn: Connection) -> dict[str, PausedTopic]:
    """Return the topics that stand still; '*' if all are paused."""
    found: dict[str, PausedTopic] = {}
    for row in await (await conn.execute(PAUSED_TOPICS)).fetchall():
        topic = found.setdefault(row.pop("topic"), PausedTopic())
        for name, value in row.items():
            if value is not None:
                setattr(topic, name, value)
    return found
