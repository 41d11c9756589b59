"""Alerts, sinks, silences and thresholds, and the alerts that were not delivered yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict

from pgrouse.client.call import Call, first, nothing, query_call, select_call
from pgrouse.client.queries.topic_filter import VISIBLE, as_array
from pgrouse.config.duration import AnyDuration, parse, to_timedelta
from pgrouse.config.policy.topic_policy import DEFAULTS
from pgrouse.errors import InvalidSetting

INCIDENTS = f"""
  SELECT i.sink, i.kind, messages.alert_severity(i.kind) AS severity, i.topic, i.result, i.error_fingerprint,
         CASE WHEN i.state <> 'over' AND silence.id IS NOT NULL THEN 'silenced' ELSE i.state END AS state,
         i.count, i.pending, i.silenced, i.notifications, i.notified_at, i.escalated_at, i.due_at, i.first_at,
         i.last_at,
         i.first_message_id, i.last_message_id, i.sample_error, i.fix, clock_timestamp() - i.last_at AS age
  FROM messages.alert_incident AS i
  CROSS JOIN LATERAL (SELECT messages.silence_of(i.kind, i.topic, i.error_fingerprint) AS id) AS silence
  WHERE (%(sink)s::text IS NULL OR i.sink = %(sink)s) AND (%(over)s OR i.state <> 'over')
    AND {VISIBLE.format("i.topic")}"""  # noqa: S608 - constants only
UNDELIVERED = b"""
  SELECT count(*) AS count, coalesce(extract(epoch FROM clock_timestamp() - min(d.created_at)), 0)::float8 AS oldest_s
  FROM (
    SELECT d.created_at FROM messages.alert_delivery AS d
    WHERE d.delivered_at IS NULL AND d.abandoned_at IS NULL LIMIT 10000) AS d"""
SILENCES = "SELECT s.*, s.until - clock_timestamp() AS ends_in FROM messages.silence AS s"


@dataclass(frozen=True, slots=True)
class Incident:
    """What one sink was told, or is told next, about one group of alerts.

    Attributes:
        sink: the name of the sink.
        kind: dead_message, breaker, or the kind of a condition.
        severity: page or ticket.
        state: firing, silenced, resolved or over.
        count: how many alerts it has.
        pending: how many alerts were not sent yet.
        silenced: how many of them were silenced.
        notifications: how many times the sink was told.
        notified_at: when the sink was told last.
        escalated_at: when it was sent as a page, because it lasted.
        due_at: when the sink is told next.
        first_at: when the first alert was.
        last_at: when the last alert was.
        first_message_id: the message of the first alert.
        last_message_id: the message of the last alert.
        fix: what to do.
        age: how long ago the last alert was.
    """

    sink: str
    kind: str
    severity: str
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
        type: what kind of sink it is, as the configuration calls it.
        state: ok, failing or no deliverer.
        held_by: the process that delivers to it.
        delivered_at: when it last took an alert.
        failing_since: since when it takes none.
        failures: how many times in a row it took none.
        last_error: what it answered then, without its secrets.
        waiting: how many alerts wait for it.
        waiting_since: when the oldest of them was written.
        abandoned: how many alerts it never took.
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
    """A silence.

    Attributes:
        kind: dead_message, breaker, or the kind of a condition; None: every kind.
        topic: a topic, or a pattern in which `*` stands for any characters; None: every topic.
        until: when it ends.
        created_at: when it was added.
        created_by: who added it.
        ends_in: when it ends.
    """

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
class Undelivered:
    """How many alerts wait for a sink, and the age of the oldest."""

    count: int
    oldest_s: float


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
    min_workers: int | None


class ThresholdChanges(TypedDict, total=False):
    """The thresholds that can be set, as of THRESHOLDS."""

    backlog_age: AnyDuration | None
    no_worker_for: AnyDuration | None
    dead_per_hour: int | None
    listener_for: AnyDuration | None
    cron_age: AnyDuration | None
    snapshot_age: AnyDuration | None
    undelivered_for: AnyDuration | None
    min_workers: int | None


# What each means; those about no topic have only '*'.
TOPIC_THRESHOLDS = {
    "backlog_age": "how long messages may be ready",
    "no_worker_for": "how long they may be ready if no worker handles the topic",
    "dead_per_hour": "how many messages may die in an hour",
}
THRESHOLDS = TOPIC_THRESHOLDS | {
    "listener_for": "how long a worker may receive no notifications",
    "cron_age": "how long pg_cron may run no tick",
    "snapshot_age": "how long a transaction may be open",
    "undelivered_for": "how long a sink may fail",
    "min_workers": "how many workers have to be alive",
}
# Those that are numbers; the others are times.
COUNTS = ("dead_per_hour", "min_workers")


def find_incidents(
    sink: str | None = None, *, over: bool, most: int, topics: Sequence[str] | None = None
) -> Call[list[Incident]]:
    """Read what the sinks were told, the latest first.

    Args:
        sink: only this one.
        over: also what is over.
        most: how many at most.
        topics: only of these: names, patterns, or beginnings that end with *. None = all.
    """
    clauses = "ORDER BY f.last_at DESC, f.sink LIMIT %(most)s"
    return query_call(INCIDENTS, Incident, clauses, sink=sink, over=over, most=most, topics=as_array(topics))


def find_sinks() -> Call[list[SinkRecord]]:
    """Read the sinks, by name."""
    return select_call("sink_state", SinkRecord, "ORDER BY f.name")


def undelivered() -> Call[Undelivered]:
    """Count the alerts that wait for a sink, up to 10,000."""
    return Call(UNDELIVERED, [], lambda rows: Undelivered(*rows[0]))


def find_silences() -> Call[list[Silence]]:
    """Read the silences that have not ended; those that end first come first."""
    return query_call(SILENCES, Silence, "WHERE f.ended_at IS NULL AND f.until > clock_timestamp() ORDER BY f.until")


def find_silence(number: int) -> Call[Silence | None]:
    """Read one silence, also one that has ended; None: there is no such number."""
    return first(query_call(SILENCES, Silence, "WHERE f.id = %(id)s", id=number))


def find_thresholds(topic: str | None = None) -> Call[list[AlertThresholds]]:
    """Read the thresholds of one topic, or of all that have some; the defaults are those of '*'."""
    clauses = (
        "WHERE %(topic)s::pg_catalog.text IS NULL OR f.topic OPERATOR(pg_catalog.=) %(topic)s"
        " ORDER BY f.topic OPERATOR(pg_catalog.<>) '*', f.topic"
    )
    return select_call("alert_threshold", AlertThresholds, clauses, topic=topic)


def read_threshold(name: str, text: str) -> timedelta | int | None:
    """Read a threshold as it is typed; nothing stands for the default.

    Raises:
        ValueError: it is no duration, or no number.
    """
    if not text.strip():
        return None
    return int(text) if name in COUNTS else parse(text)


def set_thresholds(topic: str, changes: Mapping[str, Any]) -> Call[None]:
    """Set thresholds of a topic, or of '*'; None takes the default.

    Raises:
        ValueError: nothing is given, what is no threshold, or a duration that is none.
        TypeError: a value of another type.
        InvalidSetting: of a topic, one that is about no topic.
    """
    unknown = sorted(changes.keys() - set(THRESHOLDS))
    if unknown or not changes:
        raise ValueError(f"there is no threshold {', '.join(unknown) or 'given'}: give some of {', '.join(THRESHOLDS)}")
    values = {name: _threshold(name, value) for name, value in changes.items()}
    others = [name for name in values.keys() - TOPIC_THRESHOLDS.keys() if values[name] is not None]
    if topic != DEFAULTS and others:
        raise InvalidSetting(f"{min(others)} is about no topic: set it for '{DEFAULTS}', not for {topic}")
    changed = ", ".join(f"{name} = %({name})s" for name in values)
    # An INSERT is checked as a whole row, and the defaults have to be whole: those are only ever changed.
    statement = (
        f"UPDATE messages.alert_threshold SET {changed} "  # noqa: S608 - constants only
        "WHERE topic OPERATOR(pg_catalog.=) %(topic)s RETURNING true"
        if topic == DEFAULTS
        else f"INSERT INTO messages.alert_threshold (topic, {', '.join(values)})"  # noqa: S608
        f" VALUES (%(topic)s, {', '.join(f'%({name})s' for name in values)})"
        f" ON CONFLICT (topic) DO UPDATE SET {changed} RETURNING true"
    )
    return Call(statement.encode(), {"topic": topic, **values}, nothing)


def _threshold(name: str, value: Any) -> timedelta | int | None:
    if value is None:
        return None
    return int(value) if name in COUNTS else to_timedelta(value, name)
