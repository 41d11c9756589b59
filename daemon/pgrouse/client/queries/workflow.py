"""Workflows: messages that come after others, each workflow with the id of its first message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pgrouse.client.call import Call, query_call, value
from pgrouse.client.queries.message import STATE

WorkflowWord = Literal["running", "held", "failed", "cancelled", "finished"]
# How many messages of a workflow a list counts, and how many of one are read at most.
MAX_COUNTED = 200
MAX_MESSAGES = 10_000

# The messages of a workflow: its first one, those that come after it, those that they come after too, and what these
# were redriven as. Of one that has more, the latest; and the lists only up to a number of ids, which may be large.
MEMBERS = """
  WITH RECURSIVE list AS (
    SELECT o.message_id,
           CASE WHEN sum(cardinality(o.ids)) OVER (ORDER BY o.message_id DESC) <= 10 * {most} THEN o.ids END AS ids
    FROM (
      SELECT p.message_id, p.ids FROM messages.predecessor_list AS p
      WHERE p.workflow_id = {id} ORDER BY p.message_id DESC LIMIT {most}) AS o
  ), member AS (
    SELECT n.id FROM (
      SELECT {id} AS id
      UNION SELECT l.message_id FROM list AS l
      UNION SELECT e.id FROM list AS l CROSS JOIN LATERAL unnest(l.ids) AS e (id)
      ORDER BY id DESC LIMIT {most}) AS n
    UNION
    SELECT r.message_id FROM member AS m JOIN messages.redrive_log AS r ON r.archived_id = m.id
  )"""
# Each is looked up by its id: OFFSET 0 keeps the planner from reading whole tables.
MESSAGE = f"""
  LEFT JOIN LATERAL (
    SELECT f.* FROM (
      SELECT m.topic::text AS topic,
             CASE WHEN EXISTS (SELECT FROM messages.blocked_message AS k WHERE k.id = m.id) THEN 'blocked'
               ELSE {STATE} END AS state,
             m.attempts::integer AS attempts, m.created_at::timestamptz AS created_at,
             NULL::timestamptz AS archived_at, m.batch_id,
             EXISTS (
               SELECT FROM messages.dependency AS g WHERE g.successor_id = m.id AND g.failed_result IS NOT NULL
             ) AS is_held
      FROM messages.message AS m WHERE m.id = n.id
      UNION ALL
      SELECT a.topic, a.result, a.attempts, a.created_at, a.archived_at, a.batch_id, false
      FROM messages.message_archive AS a WHERE a.id = n.id) AS f LIMIT 1 OFFSET 0) AS s ON true
  LEFT JOIN LATERAL (
    SELECT r.message_id FROM messages.redrive_log AS r WHERE r.archived_id = n.id OFFSET 0) AS r ON true"""  # noqa: S608
WORKFLOWS = f"""
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
  SELECT w.id, c.*
  FROM workflow AS w
  CROSS JOIN LATERAL (
    SELECT (array_agg(s.topic ORDER BY n.id) FILTER (WHERE s.topic IS NOT NULL))[1] AS topic, count(*) AS total,
           count(*) FILTER (WHERE s.topic IS NOT NULL AND s.archived_at IS NULL) AS live,
           count(*) FILTER (WHERE s.is_held) AS held,
           count(*) FILTER (WHERE s.state IN ('failed', 'rejected', 'lock_expired', 'expired')) AS dead,
           count(*) FILTER (WHERE s.state = 'cancelled') AS cancelled,
           min(s.created_at) AS created_at, max(s.archived_at) AS last_ended_at,
           coalesce(max(n.members), 0) < {MAX_COUNTED} AS is_whole
    FROM (
      {MEMBERS.format(id="w.id", most=MAX_COUNTED)} SELECT m.id, count(*) OVER () AS members FROM member AS m
    ) AS n {MESSAGE}
    WHERE r.message_id IS NULL AND (%(regexps)s::text[] IS NULL OR s.topic ~ ANY (%(regexps)s))
  ) AS c"""  # noqa: S608 - constants only
MESSAGES = f"""
  {MEMBERS.format(id="%(id)s::bigint", most=MAX_MESSAGES)}
  SELECT n.id, r.message_id AS redriven_as, l.ids AS after, w.workflow_id, s.topic, s.state, s.attempts, s.created_at,
         s.archived_at, s.batch_id, s.is_held
  FROM member AS n LEFT JOIN list AS l ON l.message_id = n.id {MESSAGE}
  LEFT JOIN LATERAL (
    SELECT p.workflow_id FROM messages.predecessor_list AS p WHERE p.message_id = n.id OFFSET 0) AS w ON true
"""  # noqa: S608 - constants only
WORKFLOW_OF = b"""
  SELECT coalesce(
    (SELECT p.workflow_id FROM messages.predecessor_list AS p WHERE p.message_id = %(id)s),
    (SELECT p.workflow_id FROM messages.predecessor_list AS p WHERE p.workflow_id = %(id)s LIMIT 1),
    (SELECT g.workflow_id
     FROM messages.redrive_log AS r JOIN messages.predecessor_list AS g ON g.workflow_id = r.archived_id
     WHERE r.message_id = %(id)s LIMIT 1))"""


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow, and what became of its messages.

    Attributes:
        id: that of its first message.
        topic: that of its first message of which something is kept.
        total: how many messages it has.
        live: how many of them have not ended.
        held: how many of those wait for one that did not succeed.
        dead: how many died, without those that were redriven.
        cancelled: how many were cancelled.
        created_at: when its first message was published.
        last_ended_at: when the latest of those that ended did.
        is_whole: false: it has more messages, and the latest were counted.
    """

    id: int
    topic: str | None
    total: int
    live: int
    held: int
    dead: int
    cancelled: int
    created_at: datetime | None
    last_ended_at: datetime | None
    is_whole: bool

    @property
    def state(self) -> WorkflowWord:
        """It is held if a message waits for one that did not succeed; failed if some are dead when all have ended."""
        if self.held:
            return "held"
        if self.live:
            return "running"
        return "failed" if self.dead else "cancelled" if self.cancelled else "finished"


@dataclass(frozen=True, slots=True)
class WorkflowMessage:
    """A message of a workflow.

    Attributes:
        redriven_as: the message that it was redriven as, which takes its place.
        after: the messages that it comes after.
        workflow_id: the workflow that it belongs to; None: it comes after none.
        topic: None: nothing of the message is kept.
        state: its state, or blocked: it waits for others; None: nothing of the message is kept.
        is_held: whether it waits for a message that did not succeed.
    """

    id: int
    redriven_as: int | None
    after: Sequence[int] | None
    workflow_id: int | None
    topic: str | None
    state: str | None
    attempts: int | None
    created_at: datetime | None
    archived_at: datetime | None
    batch_id: int | None
    is_held: bool | None

    @property
    def is_live(self) -> bool:
        """Whether it has not ended."""
        return self.topic is not None and self.archived_at is None


def find_workflows(*, before: int | None = None, regexps: Sequence[str] | None, most: int) -> Call[list[Workflow]]:
    """Read workflows, the latest first.

    Args:
        before: only those with a lower id: the last one of the previous page.
        regexps: count only messages whose topic fits one of these regular expressions; None = all.
        most: how many.
    """
    wanted = None if regexps is None else list(regexps)
    return query_call(WORKFLOWS, Workflow, before=before, regexps=wanted, most=most)


def find_workflow_messages(workflow_id: int) -> Call[list[WorkflowMessage]]:
    """Read the messages of a workflow, at most about `MAX_MESSAGES`."""
    return query_call(MESSAGES, WorkflowMessage, "ORDER BY f.id", id=workflow_id)


def workflow_of(message_id: int) -> Call[int | None]:
    """Return the workflow that a message belongs to; None: it comes after none, and none comes after it."""
    return Call(WORKFLOW_OF, {"id": message_id}, value)
