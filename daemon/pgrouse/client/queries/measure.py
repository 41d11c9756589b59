"""What the workers measured: which topics and workers do most, and how long messages wait and run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from pgrouse.client.call import Call, query_call, values
from pgrouse.client.queries.topic_filter import VISIBLE, as_array

# Deferred and released attempts are not counted: nothing ended with them. now(), not messages.now(): the planner must
# see how little that is.
BUSIEST = """
  SELECT m.{name}
  FROM messages.{table} AS m
  WHERE m.minute >= now() - %(since)s::interval {visible}
  GROUP BY m.{name}
  ORDER BY sum(m.success + m.retried + m.rejected + m.failed + m.lock_expired) DESC, m.{name}
  LIMIT %(most)s"""
OF_TOPICS = f"AND {VISIBLE.format('m.topic')}"
BUSIEST_TOPICS = BUSIEST.format(table="measure", name="topic", visible=OF_TOPICS).encode()
BUSIEST_WORKERS = BUSIEST.format(table="worker_measure", name="worker", visible="").encode()
TIMES = f"""
  SELECT n.place, n.name, n.entries, messages.quantile(n.counts, 0.5) AS p50, messages.quantile(n.counts, 0.95) AS p95,
         messages.quantile(n.counts, 0.99) AS p99
  FROM (
    SELECT messages.unpack_histogram(sum(m.waits)) AS waits, messages.unpack_histogram(sum(m.runs)) AS runs,
           messages.unpack_histogram(sum(m.wakes)) AS wakes
    FROM messages.measure AS m
    WHERE m.minute >= date_trunc('minute', now() - %(since)s::interval) {OF_TOPICS}
    OFFSET 0
  ) AS s
  CROSS JOIN LATERAL (VALUES (1, 'wait', s.waits), (2, 'run', s.runs), (3, 'wake', s.wakes)) AS k (place, name, counts)
  CROSS JOIN LATERAL (
    SELECT k.place, k.name, k.counts, (SELECT sum(c) FROM unnest(k.counts) AS c)::bigint AS entries OFFSET 0
  ) AS n"""  # noqa: S608 - constants only


@dataclass(frozen=True, slots=True)
class MeasuredTime:
    """How long messages waited, ran or took to wake a worker, in seconds; None: nothing was measured.

    Attributes:
        name: wait, run or wake.
        entries: how many were measured.
    """

    name: str
    entries: int | None
    p50: float | None
    p95: float | None
    p99: float | None


def busiest_topics(since: timedelta, topics: Sequence[str] | None = None, most: int | None = None) -> Call[list[str]]:
    """Read the topics in which most attempts ended within a time.

    Args:
        since: how far back.
        topics: only these: names, patterns, or beginnings that end with *. None = all.
        most: how many; None = all.
    """
    return Call(BUSIEST_TOPICS, {"since": since, "topics": as_array(topics), "most": most}, values)


def busiest_workers(since: timedelta, most: int) -> Call[list[str]]:
    """Read the workers that ended most attempts within a time."""
    return Call(BUSIEST_WORKERS, {"since": since, "most": most}, values)


def measured_times(since: timedelta, topics: Sequence[str] | None = None) -> Call[list[MeasuredTime]]:
    """Read how long messages waited, ran and took to wake a worker within a time: three rows.

    Arguments as of busiest_topics.
    """
    return query_call(TIMES, MeasuredTime, "ORDER BY f.place", since=since, topics=as_array(topics))
