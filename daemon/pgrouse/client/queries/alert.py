"""Alerts, sinks, silences and thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta

from pgrouse.client.call import Call, first, nothing, query_call, select_call

INCIDENTS = """
  SELECT i.sink, i.kind, i.topic, i.result, i.error_fingerprint,
         CASE WHEN i.state <> 'over' AND silenced.until IS NOT NULL THEN 'silenced' ELSE i.state END AS state,
         i.count, i.pending, i.silenced, i.notifications, i.notified_at, i.escalated_at, i.due_at, i.first_at, i.last_at,
         i.first_message_id, i.last_message_id, i.sample_error, i.fix, clock_timestamp() - i.last_at AS age
  FROM messages.alert_incident AS i
  CROSS JOIN LATERAL (SELECT messages.silenced_until(i.kind, i.topic, i.error_fingerprint) AS until) AS silenced
  WHERE (%(sink)s::text IS NULL OR i.sink = %(sink)s) AND (%(over)s OR i.state <> 'over')"""
SINKS = """
  SELECT s.name, s.type,
         CASE
           WHEN s.failing_since IS NOT NULL THEN 'failing'
           WHEN s.seen_at < clock_timestamp() - interval '1 minute' THEN 'no deliverer'
           ELSE 'ok'
         END AS state,
         s.held_by, s.seen_at, s.delivered_at, s.failing_since, s.failures,
         CASE WHEN s.failing_since IS NOT NULL THEN s.last_error END AS last_error,
         waiting.messages AS waiting, waiting.since AS waiting_since, aside.messages AS abandoned,
         clock_timestamp() - s.delivered_at AS age
  FROM messages.alert_sink AS s
  CROSS JOIN LATERAL (
    SELECT count(*) AS messages, min(d.created_at) AS since FROM messages.alert_delivery AS d
    WHERE d.sink = s.name AND d.delivered_at IS NULL AND d.abandoned_at IS NULL) AS waiting
  CROSS JOIN LATERAL (
    SELECT count(*) AS messages FROM messages.alert_delivery AS d
    WHERE d.sink = s.name AND d.abandoned_at IS NOT NULL) AS aside"""
SILENCES = "SELECT s.*, s.until - clock_timestamp() AS ends_in FROM messages.silence AS s"


@dataclass(frozen=True, slots=True)
class Incident:
    """What one sink was told, or is told next, about one group of alerts.

    Attributes:
        state: firing, silenced, resolved or over.
        pending: how many alerts were not sent yet.
        age: how long ago the last alert was.
    """

    sink: str
    kind: str
    topic: str | None
    result: str | None
    error_fingerprint: str | None
    state: str
    count: int
    pending: int
    silenced: int
    notifications: int
    notified_at: datetime | None
    escalated_at: datetime | None
    due_at: datetime | None
    first_at: datetime
    last_at: datetime
    first_message_id: int | None
    last_message_id: int | None
    sample_error: str | None
    fix: str | None
    age: timedelta


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """A sink, and whether alerts reach it.

    Attributes:
        state: ok, failing or no deliverer.
        age: how long ago the last delivery was.
    """

    name: str
    type: str
    state: str
    held_by: str | None
    seen_at: datetime
    delivered_at: datetime | None
    failing_since: datetime | None
    failures: int
    last_error: str | None
    waiting: int
    waiting_since: datetime | None
    abandoned: int
    age: timedelta | None


@dataclass(frozen=True, slots=True)
class Silence:
    """A silence. ends_in: when it ends."""

    id: int
    kind: str | None
    topic: str | None
    error_fingerprint: str | None
    until: datetime
    reason: str | None
    created_at: datetime
    created_by: str
    ends_in: timedelta


@dataclass(frozen=True, slots=True)
class AlertThresholds:
    """When conditions become alerts; 0 = never. None: those of the topic * apply."""

    topic: str
    backlog_age: timedelta | None
    no_worker_for: timedelta | None
    dead_per_hour: int | None
    listener_for: timedelta | None
    cron_age: timedelta | None
    snapshot_age: timedelta | None
    undelivered_for: timedelta | None


THRESHOLDS = tuple(each.name for each in fields(AlertThresholds) if each.name != "topic")


def find_incidents(sink: str | None = None, *, over: bool, most: int) -> Call[list[Incident]]:
    """Read what the sinks were told, the latest first; over: also what is over."""
    return query_call(
        INCIDENTS, Incident, "ORDER BY f.last_at DESC, f.sink LIMIT %(most)s", sink=sink, over=over, most=most
    )


def find_sinks() -> Call[list[SinkRecord]]:
    """Read the sinks, by name."""
    return query_call(SINKS, SinkRecord, "ORDER BY f.name")


def find_silences() -> Call[list[Silence]]:
    """Read the silences that have not ended; those that end first come first."""
    return query_call(SILENCES, Silence, "WHERE f.ended_at IS NULL AND f.until > clock_timestamp() ORDER BY f.until")


def find_silence(number: int) -> Call[Silence | None]:
    """Read one silence, also one that has ended; None: there is no such number."""
    return first(query_call(SILENCES, Silence, "WHERE f.id = %(id)s", id=number))


def find_thresholds(topic: str | None = None) -> Call[list[AlertThresholds]]:
    """Read the thresholds of all topics that have some, or of one; those of * are the defaults."""
    clauses = "WHERE %(topic)s::text IS NULL OR f.topic = %(topic)s ORDER BY f.topic"
    return select_call("alert_threshold", AlertThresholds, clauses, topic=topic)


def set_thresholds(topic: str, thresholds: Mapping[str, timedelta | int | None]) -> Call[None]:
    """Set some thresholds of a topic, by their names in THRESHOLDS."""
    names = [name for name in THRESHOLDS if name in thresholds]
    changes = ", ".join(f"{name} = %({name})s" for name in names)
    # An INSERT is checked as a whole row, and the defaults have to be whole: those are only ever changed.
    statement = (
        f"UPDATE messages.alert_threshold SET {changes} WHERE topic = '*'"  # noqa: S608 - constants only
        if topic == "*"
        else f"INSERT INTO messages.alert_threshold (topic, {', '.join(names)}) "  # noqa: S608 - constants only
        f"VALUES (%(topic)s, {', '.join(f'%({name})s' for name in names)}) ON CONFLICT (topic) DO UPDATE SET {changes}"
    )
    values = {"topic": topic, **{name: thresholds[name] for name in names}}
    return Call(f"{statement} RETURNING true".encode(), values, nothing)
