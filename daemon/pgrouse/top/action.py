"""The actions of `pgrouse top`: calls of the SQL functions that the command line uses, on the connection of the view."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

from pgrouse.cli.bulk import REDRIVEN_OUTCOMES
from pgrouse.top.snapshot import DeadGroup

# So many are put back by one confirmation, in transactions of so many each.
AT_ONCE = 1000
BATCH = 500
TIMEOUT = b"SET LOCAL statement_timeout = '30s'"
# Without a fingerprint the filter would take all of the topic and result.
FIND = b"""
  SELECT f.id
  FROM messages.find_dead(%(topic)s, %(result)s, %(fingerprint)s, now() - interval '1 day', NULL, NULL, %(limit)s) AS f
  WHERE f.error_fingerprint IS NOT DISTINCT FROM %(fingerprint)s
  ORDER BY f.archived_at, f.id"""


@dataclass(frozen=True)
class RedrivePreview:
    """What a redrive of a group would do: the ids that would be redriven, and how many others not, by reason."""

    group: DeadGroup
    ids: list[int]
    staying: Counter[str]
    there_are_more: bool


def pause(conn: psycopg.Connection, topic: str, reason: str) -> None:
    """Stop a topic until it is resumed."""
    conn.execute("SELECT messages.pause(%s, %s)", [topic, reason])


def resume(conn: psycopg.Connection, topic: str) -> bool:
    """End a pause; return whether the topic itself was paused."""
    row = conn.execute("SELECT messages.resume(%s)", [topic]).fetchone()
    return row == (True,)


def preview(conn: psycopg.Connection, group: DeadGroup) -> RedrivePreview:
    """Say what putting back the oldest of a group would do."""
    values = {"topic": group.topic, "result": group.result, "fingerprint": group.fingerprint, "limit": AT_ONCE}
    with conn.transaction():
        conn.execute(TIMEOUT)
        ids = [message_id for (message_id,) in conn.execute(FIND, values)]
        may = conn.execute("SELECT m.archived_id, m.outcome FROM messages.preview_redrive(%s) AS m", [ids]).fetchall()
    backs = {message_id for message_id, outcome in may if outcome in REDRIVEN_OUTCOMES}
    staying = Counter(outcome for _, outcome in may if outcome not in REDRIVEN_OUTCOMES)
    return RedrivePreview(group, [each for each in ids if each in backs], staying, len(ids) == AT_ONCE)


def redrive(conn: psycopg.Connection, ids: list[int]) -> Counter[str]:
    """Put these back; return how many had which outcome. Interrupted in the middle, what was done stays done, and is not done twice."""
    outcomes: Counter[str] = Counter()
    for start in range(0, len(ids), BATCH):
        with conn.transaction():
            conn.execute(TIMEOUT)
            rows = conn.execute("SELECT r.outcome FROM messages.redrive(%s) AS r", [ids[start : start + BATCH]])
            outcomes.update(outcome for (outcome,) in rows)
    return outcomes


def explain(conn: psycopg.Connection, message_id: int) -> list[dict[str, Any]]:
    """Return why a message is not running, or how it ended: code and reason, the most decisive first."""
    with conn.transaction():
        conn.execute(TIMEOUT)
        query = "SELECT e.code, e.reason FROM messages.explain(%s) AS e"
        return conn.cursor(row_factory=dict_row).execute(query, [message_id]).fetchall()
