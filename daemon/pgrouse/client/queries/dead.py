"""Dead messages, and the copies of them that wait in `.dlq` topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack

from pgrouse.client.call import Call, query_call, select_call, values

# Topic by topic, at most a page of each: in the index message_archive_dead the latest of a topic are adjacent.
# The conditions repeat the predicate of that index.
LATEST = """
  SELECT d.*, clock_timestamp() - d.archived_at AS age
  FROM unnest(%(topics)s::text[]) AS t (topic)
  CROSS JOIN LATERAL (
    SELECT d.id, d.topic, d.result, d.channel, d.key, d.attempts, d.redrives, d.archived_at, d.handled_by AS worker,
           d.error_fingerprint, d.error, d.redriven_as
    FROM messages.dead AS d
    WHERE d.result NOT IN ('success', 'cancelled')
      AND d.topic = t.topic
      AND (%(result)s::text IS NULL OR d.result = %(result)s)
      AND (%(fingerprint)s::text IS NULL OR d.error_fingerprint = %(fingerprint)s)
      AND (%(error)s::text IS NULL OR strpos(lower(d.error), lower(%(error)s)) > 0)
      AND (%(since)s::interval IS NULL OR d.archived_at > now() - %(since)s)
      AND (%(until)s::interval IS NULL OR d.archived_at <= now() - %(until)s)
      AND (%(redriven)s OR d.redriven_as IS NULL)
      AND (%(before)s::bigint IS NULL OR (d.archived_at, d.id) < (
        SELECT last.archived_at, last.id FROM messages.message_archive AS last WHERE last.id = %(before)s))
    ORDER BY d.archived_at DESC, d.id DESC LIMIT %(most)s
  ) AS d"""
DETAILS = """
  SELECT a.id, a.topic, a.result, a.error_fingerprint, a.error, clock_timestamp() - a.archived_at AS age
  FROM unnest(%(ids)s::bigint[], %(archived_at)s::timestamptz[]) AS p (id, archived_at)
  JOIN messages.message_archive AS a ON a.id = p.id AND a.archived_at = p.archived_at"""
# One branch per index of the table.
COPIES = " UNION ALL ".join(
    f"""
  (SELECT m.id FROM messages.message AS m
   WHERE m.topic = %(topic)s AND m.claim_id IS NULL AND m.channel {which} AND m.dlq_moved_at IS NOT NULL
     AND m.id > %(after)s
   ORDER BY m.id LIMIT %(most)s)"""  # noqa: S608 - constants only
    for which in ("IS NULL", "IS NOT NULL")
)


@dataclass(frozen=True, slots=True)
class DeadDetail:
    """How a message died. age: how long ago."""

    id: int
    topic: str
    result: str
    error_fingerprint: str | None
    error: str | None
    age: timedelta


@dataclass(frozen=True, slots=True)
class DeadRecord(DeadDetail):
    """A dead message of a list.

    Attributes:
        worker: which one had it last.
        redriven_as: the message that replaced it.
    """

    channel: str | None
    key: str | None
    attempts: int
    redrives: int
    archived_at: datetime
    worker: str | None
    redriven_as: int | None


@dataclass(frozen=True, slots=True)
class WaitingCopy:
    """A message that waits, and the topic in which its original died."""

    id: int
    topic: str
    original_topic: str | None


class DeadFilters(TypedDict, total=False):
    """Which dead messages to read; None = any.

    Attributes:
        result: with this result.
        fingerprint: with this kind of error.
        error: whose error contains this text, in upper or lower case.
        since: that ended within this time.
        until: that ended longer ago than this.
        before: that ended before this message.
    """

    result: str | None
    fingerprint: str | None
    error: str | None
    since: timedelta | None
    until: timedelta | None
    before: int | None


def latest_dead(
    topics: Sequence[str], *, most: int, redriven: bool = False, **filters: Unpack[DeadFilters]
) -> Call[list[DeadRecord]]:
    """Read the dead messages of some topics, the latest first.

    Args:
        topics: of these.
        most: how many.
        redriven: also those that were redriven since.
        **filters: which.
    """
    clauses = "ORDER BY f.archived_at DESC, f.id DESC LIMIT %(most)s"
    values: dict[str, Any] = dict.fromkeys(DeadFilters.__annotations__) | filters
    return query_call(LATEST, DeadRecord, clauses, **values, topics=list(topics), redriven=redriven, most=most)


def dead_details(found: Sequence[tuple[int, datetime | None]]) -> Call[list[DeadDetail]]:
    """Read how messages died. found: their ids, and when they ended; one without a time is left out."""
    return query_call(DETAILS, DeadDetail, ids=[each for each, _ in found], archived_at=[at for _, at in found])


def waiting_copies(topic: str, after: int, most: int) -> Call[list[int]]:
    """Read the ids of the dead letters that wait in a `.dlq` topic, in order after an id."""
    statement = f"{COPIES} ORDER BY id LIMIT %(most)s"
    return Call(statement.encode(), {"topic": topic, "after": after, "most": most}, values)


def origins_of(ids: Sequence[int]) -> Call[list[WaitingCopy]]:
    """Read where messages that have not ended come from."""
    return select_call("message", WaitingCopy, "WHERE f.id = ANY (%(ids)s::bigint[]) ORDER BY f.id", ids=list(ids))
