"""The table of schedules: how it is read and written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from pydantic_core import from_json

from pgrouse.client.call import Call, Rows, all_rows, nothing, values

FIND = b"""
  SELECT s.name, s.cron, s.time_zone, s.topic, s.channel, s.key, s.priority, s.jitter, s.missed, s.missed_limit,
         CASE
           WHEN s.paused_at IS NOT NULL THEN 'paused'
           WHEN s.failures OPERATOR(pg_catalog.>) 0 THEN 'failing'
           WHEN s.next_tick IS NULL THEN 'over'
           ELSE 'on'
         END,
         s.paused_at, s.paused_by, s.paused_reason, s.next_tick, s.last_tick, s.last_fired_at, s.last_message_id,
         s.last_error, s.failed_at, s.failures, s.retry_at, s.created_at, s.created_by, s.declared_by,
         s.payload::pg_catalog.text, s.headers::pg_catalog.text
  FROM messages.schedule AS s
  WHERE %(name)s::pg_catalog.text IS NULL OR s.name OPERATOR(pg_catalog.=) %(name)s
  ORDER BY s.name"""
LOCAL_TIMES = b"""
  SELECT pg_catalog.to_char(t.at AT TIME ZONE %s, 'Dy YYYY-MM-DD HH24:MI:SS')
  FROM pg_catalog.unnest(%s::pg_catalog.timestamptz[]) WITH ORDINALITY AS t (at, place) ORDER BY t.place"""
DELETE = b"DELETE FROM messages.schedule AS s WHERE s.name OPERATOR(pg_catalog.=) %(name)s RETURNING true"
COLUMNS = (
    *("name", "cron", "time_zone", "topic", "channel", "key"),
    *("priority", "payload", "headers", "jitter", "missed", "missed_limit", "declared_by"),
)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule, and what it did.

    Attributes:
        declared_by: the file, module or application whose configuration has it; None = it was made by hand.
        state: on, paused, failing or over (it has no next tick).
        payload_json: of each message.
    """

    name: str
    cron: str
    time_zone: str
    topic: str
    channel: str | None
    key: str | None
    priority: int
    jitter: timedelta
    missed: str
    missed_limit: int
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
    payload_json: str
    headers_json: str | None

    @property
    def payload(self) -> Any:
        """The payload of each message."""
        return from_json(self.payload_json)

    @property
    def headers(self) -> Any:
        """The headers of each message."""
        return None if self.headers_json is None else from_json(self.headers_json)


def find_schedules(name: str | None = None) -> Call[list[Schedule]]:
    """Read the schedules, by name, or the one with a name."""
    return Call(FIND, {"name": name}, partial(all_rows, Schedule))


def add_schedule(given: dict[str, Any], *, replace: bool = False) -> Call[None]:
    """Add a schedule.

    Args:
        given: the columns that are set; payload and headers are JSON text. The others have the defaults of the table.
        replace: change the one with this name, if there is one.
    """
    names = [column for column in COLUMNS if given.get(column) is not None]
    changes = ", ".join(
        f"{column} = excluded.{column}" if column in names else f"{column} = DEFAULT" for column in COLUMNS
    )
    statement = (
        f"INSERT INTO messages.schedule ({', '.join(names)}) VALUES ({', '.join(f'%({name})s' for name in names)})"  # noqa: S608 - constants only
        + f" ON CONFLICT (name) DO UPDATE SET {changes}" * replace
        + " RETURNING true"
    )
    return Call(statement.encode(), {name: given[name] for name in names}, nothing)


def delete_schedule(name: str) -> Call[bool]:
    """Delete a schedule; whether there was one."""
    return Call(DELETE, {"name": name}, _is_any)


def local_times(ticks: Sequence[datetime], time_zone: str) -> Call[list[str]]:
    """Say what the clocks of a time zone show at these times."""
    return Call(LOCAL_TIMES, [time_zone, list(ticks)], values)


def _is_any(rows: Rows) -> bool:
    return bool(rows)
