"""The audit log: who did what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, Unpack

from pgrouse.client.call import Call, Rows, decoded, query_call, values
from pgrouse.client.queries.topic_filter import WANTED, as_array

ACTIONS = "SELECT a.* FROM messages.audit AS a WHERE a.id < coalesce(%(before)s, 9223372036854775807)"
LATEST = f"{ACTIONS} ORDER BY a.id DESC LIMIT %(most_read)s"
# topics: those that a caller may see; NULL = all. An action on no topic, or also on a topic that
# fits no pattern, is only for callers that see all topics.
FILTERED = f"""
  WHERE (%(topics)s::text[] IS NULL OR ({WANTED.format("f.topic")} AND NOT EXISTS (
      SELECT FROM jsonb_array_elements_text(jsonb_path_query_array(f.detail, '$.topics[*]')) AS o (topic)
      WHERE NOT {WANTED.format("o.topic")})))
    AND (%(actor)s::text IS NULL OR f.actor = %(actor)s)
    AND (%(action)s::text IS NULL OR translate(f.action, '_.', '  ') = translate(%(action)s, '_.', '  '))
    AND (%(topic)s::text IS NULL OR f.topic = %(topic)s OR f.detail -> 'topics' ? %(topic)s)
    AND (%(target)s::text IS NULL OR f.target = %(target)s OR f.detail -> 'ids' @> to_jsonb(%(target_id)s::bigint))
    AND (%(since)s::timestamptz IS NULL OR f.at >= %(since)s)
    AND (%(until)s::timestamptz IS NULL OR f.at < %(until)s)
  ORDER BY f.id DESC LIMIT %(limit)s"""
END_OF_LATEST = f"SELECT min(f.id), count(*) FROM ({LATEST}) AS f"  # noqa: S608 - constants only
KNOWN_ACTIONS = """
  SELECT DISTINCT f.action
  FROM (SELECT a.action FROM messages.audit AS a ORDER BY a.id DESC LIMIT 1000) AS f
  ORDER BY f.action"""


@dataclass(frozen=True, slots=True)
class AuditedAction:
    """One action of an operator.

    Attributes:
        id: the number of the entry.
        db_user: the role of the server that the actor used.
        detail_json: old and new values, the reason, and what else belongs to the action.
    """

    id: int
    at: datetime
    actor: str
    db_user: str
    action: str
    topic: str | None
    target: str | None
    detail_json: str

    detail = decoded("detail_json")


class ActionFilters(TypedDict, total=False):
    """Which actions to find; None = any.

    Attributes:
        topics: names, patterns, or beginnings that end with *; all topics of the action fit one. None = any topic or
            none.
        actor: by this user or token.
        action: of this name; blanks stand for underscores and dots.
        topic: on this topic, also together with others.
        target: on this one; of an action on many messages, one of their ids.
        since: at this time or later.
        until: before this time.
    """

    topics: Sequence[str] | None
    actor: str | None
    action: str | None
    topic: str | None
    target: str | None
    since: datetime | None
    until: datetime | None


def find_actions(
    *, limit: int, before: int | None = None, most_read: int | None = None, **filters: Unpack[ActionFilters]
) -> Call[list[AuditedAction]]:
    """Find actions that fit all filters, the latest first.

    Args:
        limit: at most this many.
        before: with a smaller id than this.
        most_read: look through at most this many actions; None = all.
        **filters: which.
    """
    target = filters.get("target")
    is_id = target is not None and target.isascii() and target.isdecimal() and int(target[:25]) < 2**63
    values: dict[str, Any] = dict.fromkeys(ActionFilters.__annotations__) | filters
    values |= {
        "topics": as_array(filters.get("topics")),
        "target_id": int(target) if target and is_id else None,
    }
    relation = ACTIONS if most_read is None else LATEST
    return query_call(relation, AuditedAction, FILTERED, **values, before=before, limit=limit, most_read=most_read)


def end_of_latest(before: int | None, most_read: int) -> Call[tuple[int | None, int]]:
    """Return the last id that find_actions looks through, and how many actions those are."""
    return Call(END_OF_LATEST.encode(), {"before": before, "most_read": most_read}, _only)


def known_actions() -> Call[list[str]]:
    """Return the names of the actions among the latest thousand, in order."""
    return Call(KNOWN_ACTIONS.encode(), {}, values)


def _only(rows: Rows) -> tuple[int | None, int]:
    ((last, count),) = rows
    return last, count
