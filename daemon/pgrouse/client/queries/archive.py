"""The archive as a whole: its days, how long they are kept, and how much of it an operation would concern."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta

from pgrouse.client.call import Call, pair, query_call, select_call, value

# Sizes are those of the files, with indexes and long values. A day goes when it is older than the longest retention.
DAYS = """
  SELECT d.day, nullif(c.reltuples, -1)::bigint AS rows, pg_relation_size(c.oid) > 0 AS is_filled,
         pg_total_relation_size(c.oid) AS bytes,
         (d.day + 1)::timestamp AT TIME ZONE 'UTC' + (SELECT max(t.retention) FROM messages.topic AS t) AS due_at
  FROM (
    SELECT i.inhrelid AS oid, c.relname AS name,
           CASE WHEN c.relname ~ '^message_archive_[0-9]{8}$' THEN to_date(right(c.relname, 8), 'YYYYMMDD') END AS day
    FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'messages.message_archive'::regclass
  ) AS d
  JOIN pg_class AS c ON c.oid = d.oid
  WHERE d.day IS NULL OR d.day <= (messages.now() AT TIME ZONE 'UTC')::date"""
ESTIMATES = """
  SELECT
    (SELECT nullif(c.reltuples, -1)::bigint FROM pg_class AS c WHERE c.oid = 'messages.message'::regclass) AS live,
    (SELECT sum(nullif(c.reltuples, -1))::bigint FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
     WHERE i.inhparent = 'messages.message_archive'::regclass) AS archived"""
OLDER = b"""
  SELECT count(*) FROM (
    SELECT FROM messages.message_archive AS a
    WHERE a.archived_at < %(before)s AND (%(topic)s::text IS NULL OR a.topic = %(topic)s)
    LIMIT %(most)s
  ) AS f"""
# As messages.replay chooses.
REPLAYABLE = b"""
  SELECT count(*), count(*) FILTER (WHERE f.is_whole)
  FROM (
    SELECT num_nonnulls(a.payload, a.body) = 1 AS is_whole
    FROM messages.message_archive AS a
    WHERE a.archived_at >= %(since)s AND a.archived_at < %(until)s AND a.topic = %(topic)s AND a.result = 'success'
      AND a.attempts > 0 AND a.id > %(after)s
    LIMIT %(most)s
  ) AS f"""


@dataclass(frozen=True, slots=True)
class ArchiveDay:
    """One day of the archive.

    Attributes:
        day: None: the partition of what has no day.
        rows: an estimate; None: not counted yet.
        due_at: when the day is removed; None: never.
    """

    day: date | None
    rows: int | None
    is_filled: bool
    bytes: int
    due_at: datetime | None


@dataclass(frozen=True, slots=True)
class TopicRetention:
    """For how long ended messages of a topic are kept; *: of all others."""

    topic: str
    retention: timedelta


@dataclass(frozen=True, slots=True)
class MessageEstimates:
    """How many messages there are, as the planner of the server estimates them; None: it does not know yet."""

    live: int | None
    archived: int | None


def archive_days() -> Call[list[ArchiveDay]]:
    """Read the days of the archive, the latest first."""
    return query_call(DAYS, ArchiveDay, "ORDER BY f.day DESC NULLS LAST")


def retentions() -> Call[list[TopicRetention]]:
    """Read the retention of the topics that have one of their own, after that of all others."""
    return select_call("topic", TopicRetention, "WHERE f.retention IS NOT NULL ORDER BY f.topic <> '*', f.topic")


def estimate_messages() -> Call[list[MessageEstimates]]:
    """Estimate how many messages there are, at no cost: one row."""
    return query_call(ESTIMATES, MessageEstimates)


def count_older(before: datetime, topic: str | None, most: int) -> Call[int]:
    """Count the messages that ended before a time, up to a number."""
    return Call(OLDER, {"before": before, "topic": topic, "most": most}, value)


def count_replayable(topic: str, since: datetime, until: datetime, after: int, most: int) -> Call[tuple[int, int]]:
    """Count the messages that a replay chooses, up to a number; and those among them that still have their contents."""
    values = {"topic": topic, "since": since, "until": until, "after": after, "most": most}
    return Call(REPLAYABLE, values, pair)
