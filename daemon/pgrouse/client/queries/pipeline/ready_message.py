"""The waiting messages, as Spark reads them: how they are divided among readers, and a sample of their payloads."""

from __future__ import annotations

from pgrouse.client.call import Call, values
from pgrouse.client.queries.pipeline.row import READY

# Rough bounds are enough: they only divide the work.
BOUNDS = """
    SELECT t.id
    FROM (
      SELECT a.id, row_number() OVER (ORDER BY a.id) AS place, count(*) OVER () AS total
      FROM messages.message AS a
      WHERE {condition}
    ) AS t
    WHERE t.place %% greatest(ceil(t.total::numeric / %(parts)s)::bigint, 1) = 0 AND t.place < t.total
    ORDER BY t.place
"""
PAYLOADS = b"""
    SELECT s.payload
    FROM messages.message AS a
    CROSS JOIN LATERAL (SELECT a.payload::text) AS s (payload)
    WHERE a.topic = %(topic)s AND pg_column_size(a.payload) <= %(bytes)s AND octet_length(s.payload) <= %(bytes)s
    LIMIT %(rows)s
"""


def ready_bounds(condition: str, parts: int) -> Call[list[int]]:
    """Read the ids that divide the ready messages with this condition into parts of about the same number."""
    statement = BOUNDS.format(condition=f"{READY} AND {condition}".replace("%", "%%"))
    return Call(statement.encode(), {"parts": parts}, values)


def sample_waiting_payloads(topic: str, rows: int, bytes_: int) -> Call[list[str]]:
    """Read payloads of messages of a topic: none larger than this."""
    return Call(PAYLOADS, {"topic": topic, "rows": rows, "bytes": bytes_}, values)
