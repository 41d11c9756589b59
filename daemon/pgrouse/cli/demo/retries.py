"""A handler that fails: its messages are tried again, each time later, and are dead after the last attempt."""

from __future__ import annotations

from typing import Any

import psycopg

from pgrouse.cli.demo.progress_watch import ProgressWatch

TOPIC = "mail.send"
MAILS = 3
# How long after the end of each attempt the next one began: those before the last are in the history. Of a message
# whose attempts all failed: one that the killed worker held is tried again without the pause of its backoff.
PAUSES = """
SELECT extract(epoch FROM next.started - ended.at)::float8
FROM messages.message_archive AS a
CROSS JOIN LATERAL jsonb_array_elements(a.history) WITH ORDINALITY AS h (attempt, n)
CROSS JOIN LATERAL (SELECT (h.attempt ->> 'ended')::timestamptz AS at) AS ended
CROSS JOIN LATERAL (
  SELECT coalesce((a.history -> h.n::int ->> 'started')::timestamptz, a.locked_at) AS started) AS next
WHERE a.id = (
  SELECT f.id FROM messages.message_archive AS f
  WHERE f.topic = %s
  ORDER BY jsonb_path_exists(f.history, '$[*] ? (@.outcome != "failed")'), f.id
  LIMIT 1)
ORDER BY h.n
"""


def publish(watch: ProgressWatch) -> None:
    """Publish some."""
    with watch.conn.transaction():
        for n in range(MAILS):
            watch.published.publish(watch.conn, TOPIC, {"order": n})


def pauses_s(conn: psycopg.Connection[Any]) -> list[float]:
    """Return how long the first message waited between its attempts."""
    return [pause for (pause,) in conn.execute(PAUSES, [TOPIC])]


def tell(watch: ProgressWatch) -> list[float]:
    """Print how often and how far apart they were tried; return the pauses, in seconds."""
    pauses = pauses_s(watch.conn)
    again = " and ".join(f"{pause:.1f} s" for pause in pauses)
    watch.screen.tell(
        "retry", f"{MAILS} mail.send failed on purpose: again after {again}, dead after attempt {len(pauses) + 1}"
    )
    return pauses
