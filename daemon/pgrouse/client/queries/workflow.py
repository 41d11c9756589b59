"""Workflows: messages that come after others, each workflow with the id of its first message."""

from __future__ import annotations

from pgrouse.client.call import Call, value, values

LATEST = b"""
  WITH RECURSIVE workflow AS (
    (SELECT p.workflow_id AS id, 1 AS place FROM messages.predecessor_list AS p
     WHERE p.workflow_id < coalesce(%(before)s, 9223372036854775807) ORDER BY p.workflow_id DESC LIMIT 1)
    UNION ALL
    SELECT p.workflow_id, w.place + 1
    FROM workflow AS w
    CROSS JOIN LATERAL (
      SELECT o.workflow_id FROM messages.predecessor_list AS o
      WHERE o.workflow_id < w.id ORDER BY o.workflow_id DESC LIMIT 1) AS p
    WHERE w.place < %(most)s
  )
  SELECT w.id FROM workflow AS w ORDER BY w.id DESC"""
WORKFLOW_OF = b"""
  SELECT coalesce(
    (SELECT p.workflow_id FROM messages.predecessor_list AS p WHERE p.message_id = %(id)s),
    (SELECT p.workflow_id FROM messages.predecessor_list AS p WHERE p.workflow_id = %(id)s LIMIT 1),
    (SELECT g.workflow_id
     FROM messages.redrive_log AS r JOIN messages.predecessor_list AS g ON g.workflow_id = r.archived_id
     WHERE r.message_id = %(id)s LIMIT 1))"""


def latest_workflows(*, before: int | None = None, most: int) -> Call[list[int]]:
    """Return the ids of workflows, the latest first.

    Args:
        before: only lower ids: the last one of the previous page.
        most: how many.
    """
    return Call(LATEST, {"before": before, "most": most}, values)


def workflow_of(message_id: int) -> Call[int | None]:
    """Return the workflow that a message belongs to; None: it comes after none, and none comes after it."""
    return Call(WORKFLOW_OF, {"id": message_id}, value)
