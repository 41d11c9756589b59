"""Schedules."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from pgrouse.client.call import Call, function_call, row_call, value, values


@dataclass(frozen=True, slots=True)
class ScheduleRun:
    """The row of `messages.run_schedule`."""

    id: int | None
    outcome: str


def next_ticks(
    cron: str, time_zone: str | None = None, count: int | None = None, after: datetime | None = None
) -> Call[list[datetime]]:
    """List the next ticks of a cron expression."""
    return function_call("next_ticks", values, cron=cron, time_zone=time_zone, count=count, after=after)


def run_schedule(name: str) -> Call[ScheduleRun]:
    """Publish the message of a schedule now."""
    return row_call("run_schedule", ScheduleRun, name=name)


def pause_schedule(name: str, reason: str | None = None) -> Call[bool]:
    """Stop a schedule until it is resumed; return whether it was running."""
    return function_call("pause_schedule", value, name=name, reason=reason)


def resume_schedule(name: str) -> Call[bool]:
    """Continue a schedule with its next tick; return whether it was paused."""
    return function_call("resume_schedule", value, name=name)


def fire_schedules(limit: int | None = None) -> Call[int]:
    """Publish what is due by the schedules; return how many messages."""
    return function_call("fire_schedules", value, limit=limit)


def next_schedule_due() -> Call[timedelta | None]:
    """Return how long until the next schedule is due; None = never."""
    return function_call("next_schedule_due", value)
