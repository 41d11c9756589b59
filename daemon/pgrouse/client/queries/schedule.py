"""The table of schedules: how it is read and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from pgrouse.client.call import Call, decoded, first, nothing, query_call, select_call, values
from pgrouse.client.queries.message import STATE
from pgrouse.client.queries.topic_filter import VISIBLE, WANTED, as_array
from pgrouse.config.duration import AnyDuration
from pgrouse.config.policy.policy_options import BackoffKind, BackoffOptions

LOCAL_TIMES = b"""
  SELECT pg_catalog.to_char(t.at AT TIME ZONE %s, 'Dy YYYY-MM-DD HH24:MI:SS')
  FROM pg_catalog.unnest(%s::pg_catalog.timestamptz[]) WITH ORDINALITY AS t (at, place) ORDER BY t.place"""
RUN_TIMES = f"""
  SELECT s.name, s.topic, s.last_fired_at, CASE WHEN s.paused_at IS NULL THEN s.next_tick END AS next_tick
  FROM messages.schedule AS s
  WHERE {WANTED.format("s.topic")}"""  # noqa: S608 - constants only
# Each is looked up: OFFSET 0 keeps the planner from reading whole tables.
RUNS = f"""
  SELECT r.*, s.state
  FROM unnest(%(names)s::text[]) AS n (name)
  CROSS JOIN LATERAL (
    SELECT o.* FROM messages.schedule_run AS o WHERE o.schedule = n.name ORDER BY o.tick DESC LIMIT %(most)s) AS r
  LEFT JOIN LATERAL (
    WITH RECURSIVE line AS (
      SELECT r.message_id AS id, 0 AS place
      UNION ALL
      SELECT g.message_id, l.place + 1
      FROM line AS l JOIN messages.redrive_log AS g ON g.archived_id = l.id WHERE l.place < 100
    )
    SELECT f.state
    FROM (SELECT l.id FROM line AS l ORDER BY l.place DESC LIMIT 1) AS latest
    CROSS JOIN LATERAL (
      SELECT {STATE} AS state FROM messages.message AS m WHERE m.id = latest.id
      UNION ALL
      SELECT a.result FROM messages.message_archive AS a WHERE a.id = latest.id) AS f
    LIMIT 1 OFFSET 0) AS s ON r.outcome = 'published'"""  # noqa: S608 - constants only
DELETE = b"DELETE FROM messages.schedule AS s WHERE s.name OPERATOR(pg_catalog.=) %(name)s RETURNING true"
EDITABLE = (
    *("cron", "time_zone", "topic", "channel", "key", "priority", "max_attempts", "timeout", "backoff", "retention"),
    *("payload", "headers", "jitter", "missed", "missed_limit", "while_paused"),
)
COLUMNS = ("name", *EDITABLE, "declared_by")
JSON_COLUMNS = ("payload", "headers", "backoff")
# Those that may be NULL.
OPTIONAL = ("channel", "key", "headers", "max_attempts", "timeout", "backoff", "retention")
PAGE = f"WHERE f.name OPERATOR(pg_catalog.>) %(after)s AND {VISIBLE.format('f.topic')} ORDER BY f.name LIMIT %(most)s"


class ScheduleParts(TypedDict, total=False):
    """What a schedule has in addition to its name, its times, its topic and its payload."""

    time_zone: str
    channel: str | None
    key: str | None
    priority: int
    max_attempts: int | None
    timeout: AnyDuration | None
    backoff: BackoffOptions | BackoffKind | None
    retention: AnyDuration | None
    headers: Mapping[str, Any] | None
    jitter: AnyDuration
    missed: Literal["skip", "once", "all"]
    missed_limit: int
    while_paused: Literal["publish", "skip"]


class ScheduleChanges(ScheduleParts, total=False):
    """What can be changed of a schedule."""

    cron: str
    topic: str
    payload: Any


@dataclass(frozen=True, slots=True)
class ScheduleSummary:
    """A schedule and what it did, without the payload and the headers of its messages.

    Attributes:
        name: the name of the schedule.
        topic: the topic that it publishes to.
        max_attempts: how many attempts each message has; None: what the topic says.
        timeout: how long an attempt may run; None: what the topic says; in JSON, in seconds.
        backoff_json: how long to wait before the next attempt; None: what the topic says.
        retention: how long the archive keeps each message; None: what the topic says; in JSON, in seconds.
        jitter: each message is delayed by a random time up to this; in JSON, in seconds.
        missed: what happens with ticks that were missed: skip, once or all.
        while_paused: what happens with ticks while the topic is paused: publish or skip.
        state: on, paused, failing (its last tick published nothing because of an error) or over (it has no next tick).
        paused_by: the operator who paused it.
        paused_reason: why it is paused.
        next_tick: None: no tick will come.
        last_fired_at: when it last published.
        last_message_id: the message that it last published.
        last_error: why the last tick published nothing.
        failed_at: when a tick last published nothing because of an error.
        failures: how many ticks failed, one after the other.
        retry_at: when a tick that failed is tried again.
        created_by: the operator who added it.
        declared_by: the file, settings, module or application whose configuration has it; None = it was made by hand.
    """

    name: str
    cron: str
    time_zone: str
    topic: str
    channel: str | None
    key: str | None
    priority: int
    max_attempts: int | None
    timeout: timedelta | None
    backoff_json: str | None
    retention: timedelta | None
    jitter: timedelta
    missed: str
    missed_limit: int
    while_paused: str
    state: str
    paused_at: datetime | None
    paused_by: str | None
    paused_reason: str | None
    next_tick: datetime | None
    last_tick: datetime | None
    last_fired_at: datetime | None
    last_message_id: int | None
    last_error: str | None
    failed_at: datetime | None
    failures: int
    retry_at: datetime | None
    created_at: datetime
    created_by: str
    declared_by: str | None

    backoff = decoded("backoff_json")


@dataclass(frozen=True, slots=True)
class Schedule(ScheduleSummary):
    """A schedule, and what it did.

    Attributes:
        payload_json: the payload of each message.
        headers_json: the headers of each message.
    """

    payload_json: str
    headers_json: str | None

    payload = decoded("payload_json")
    headers = decoded("headers_json")


@dataclass(frozen=True, slots=True)
class PastRun:
    """One tick of a schedule, or one run by hand.

    Attributes:
        tick: the time by the cron expression, or that of the run by hand.
        fired_at: when its message was published, or it was left out.
        outcome: published, ignored or held (a message with its key stands for it), dropped (the topic is full),
            missed, or paused (its topic was).
        missed_from: the first of the ticks before this one that were left out.
        run_by: who ran it by hand.
        state: of the message that was published, or of what it was redriven as; None: nothing of it is kept.
    """

    schedule: str
    tick: datetime
    outcome: str
    message_id: int | None
    missed_from: datetime | None
    fired_at: datetime
    run_by: str | None
    state: str | None


@dataclass(frozen=True, slots=True)
class RunTimes:
    """When a schedule ran last, and when it runs next; None: never."""

    name: str
    topic: str
    last_fired_at: datetime | None
    next_tick: datetime | None


def find_schedules(
    *, after: str = "", topics: Sequence[str] | None = None, most: int | None = None
) -> Call[list[Schedule]]:
    """Read schedules, by name.

    Args:
        after: only those with a name after this one.
        topics: only those of these topics: names, patterns, or beginnings that end with *. None = all.
        most: how many; None = all.
    """
    return select_call("schedule_state", Schedule, PAGE, after=after, topics=as_array(topics), most=most)


def list_schedules(*, topics: Sequence[str] | None, most: int) -> Call[list[ScheduleSummary]]:
    """Read schedules, by name, without the payloads, which may be large. Arguments as of find_schedules."""
    return select_call("schedule_state", ScheduleSummary, PAGE, after="", topics=as_array(topics), most=most)


def schedule_columns() -> Call[dict[str, dict[str, Any]]]:
    """Read what add_schedule takes of each schedule, by name."""
    columns = ", ".join(f"s.{each}::text" if each in JSON_COLUMNS else f"s.{each}" for each in COLUMNS)
    statement = f"SELECT {columns} FROM messages.schedule AS s ORDER BY s.name"  # noqa: S608 - constants only
    return Call(statement.encode(), [], lambda rows: {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in rows})


def find_schedule(name: str) -> Call[Schedule | None]:
    """Read one schedule; None: there is none of this name."""
    return first(select_call("schedule_state", Schedule, "WHERE f.name OPERATOR(pg_catalog.=) %(name)s", name=name))


def last_runs(name: str, most: int) -> Call[list[PastRun]]:
    """Read the latest runs of a schedule, the latest first."""
    return runs_of([name], most)


def runs_of(names: Sequence[str], most: int) -> Call[list[PastRun]]:
    """Read the latest runs of each schedule, the latest first."""
    return query_call(RUNS, PastRun, "ORDER BY f.tick DESC", names=list(names), most=most)


def run_times(wanted: Sequence[str], most: int) -> Call[list[RunTimes]]:
    """Read when schedules run, by name: those whose topic fits these names, or beginnings that end with *."""
    return query_call(RUN_TIMES, RunTimes, "ORDER BY f.name LIMIT %(most)s", topics=list(wanted), most=most)


def add_schedule(given: dict[str, Any], *, replace: bool = False) -> Call[None]:
    """Add a schedule.

    Args:
        given: the columns that are set; payload, headers and backoff are JSON text. The others have the
            defaults of the table.
        replace: change the one with this name, if there is one.
    """
    names = [column for column in COLUMNS if given.get(column) is not None]
    changes = ", ".join(
        f"{column} = excluded.{column}" if column in names else f"{column} = DEFAULT" for column in COLUMNS
    )
    statement = (
        f"INSERT INTO messages.schedule ({', '.join(names)}) "  # noqa: S608 - constants only
        f"VALUES ({', '.join(f'%({name})s' for name in names)})"
        + f" ON CONFLICT (name) DO UPDATE SET {changes}" * replace
        + " RETURNING true"
    )
    return Call(statement.encode(), {name: given[name] for name in names}, nothing)


def change_schedule(name: str, changes: Mapping[str, Any]) -> Call[bool]:
    """Change columns of a schedule; return whether there is one of this name.

    The columns are those of EDITABLE and declared_by, as of add_schedule.
    """
    names = [column for column in COLUMNS if column in changes and column != "name"]
    pairs = ", ".join(f"{column} = %({column})s" for column in names)
    statement = (
        f"UPDATE messages.schedule AS s SET {pairs} "  # noqa: S608 - constants only
        "WHERE s.name OPERATOR(pg_catalog.=) %(schedule)s RETURNING true"
    )
    return Call(statement.encode(), {**{column: changes[column] for column in names}, "schedule": name}, bool)


def delete_schedule(name: str) -> Call[bool]:
    """Delete a schedule; whether there was one."""
    return Call(DELETE, {"name": name}, bool)


def local_times(ticks: Sequence[datetime], time_zone: str) -> Call[list[str]]:
    """Say what the clocks of a time zone show at these times."""
    return Call(LOCAL_TIMES, [time_zone, list(ticks)], values)
