"""Conditions as the last tick found them, and the alerts that were not delivered yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgrouse.client.call import Call, query_call

KNOWN = """
  SELECT c.kind, c.topic, c.since FROM messages.condition AS c
  WHERE c.topic = '' OR EXISTS (
    SELECT FROM unnest(%(wanted)s::text[]) AS w (topic)
    WHERE c.topic = w.topic OR right(w.topic, 1) = '*' AND starts_with(c.topic, left(w.topic, -1)))"""
UNDELIVERED = b"""
  SELECT count(*) AS count, coalesce(extract(epoch FROM clock_timestamp() - min(d.created_at)), 0)::float8 AS oldest_s
  FROM (
    SELECT d.created_at FROM messages.alert_delivery AS d
    WHERE d.delivered_at IS NULL AND d.abandoned_at IS NULL LIMIT 10000) AS d"""


@dataclass(frozen=True, slots=True)
class KnownCondition:
    """A condition of the last tick; topic: '' = it is about none."""

    kind: str
    topic: str


@dataclass(frozen=True, slots=True)
class Undelivered:
    """How many alerts wait for a sink, and the age of the oldest."""

    count: int
    oldest_s: float


def known_conditions(wanted: Sequence[str], most: int) -> Call[list[KnownCondition]]:
    """Read what the last tick found wrong: of the topics that fit these names or beginnings, and of no topic."""
    clauses = "ORDER BY f.topic <> '', f.since, f.kind, f.topic LIMIT %(most)s"
    return query_call(KNOWN, KnownCondition, clauses, wanted=list(wanted), most=most)


def undelivered() -> Call[Undelivered]:
    """Count the alerts that wait for a sink, up to 10,000."""
    return Call(UNDELIVERED, [], lambda rows: Undelivered(*rows[0]))
