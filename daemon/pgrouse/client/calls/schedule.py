"""Schedules."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from pgrouse.client.call import Call, binding, binding_of_values


@dataclass(frozen=True, slots=True)
class ScheduleRun:
    """The row of `messages.run_schedule`.

    Attributes:
        id: the id of the message; None: it was dropped.
        outcome: as of a publish: inserted, replaced, ignored, appended, held, or dropped.
    """

    id: int | None
    outcome: str


@binding_of_values
def next_ticks(
    cron: str, time_zone: str | None = None, count: int | None = None, after: datetime | None = None
) -> Call[list[datetime]]:
    """List the next ticks of a cron expression."""


@binding
def run_schedule(name: str) -> Call[ScheduleRun]:
    """Publish the message of a schedule now."""


@binding
def pause_schedule(name: str, reason: str | None = None) -> Call[bool]:
    """Stop a schedule until it is resumed; return whether it was running."""


@binding
def resume_schedule(name: str) -> Call[bool]:
    """Continue a schedule with its next tick; return whether it was paused."""


@binding
def fire_schedules(limit: int | None = None) -> Call[int]:
    """Publish what is due by the schedules; return how many messages."""


@binding
def next_schedule_due() -> Call[timedelta | None]:
    """Return how long until the next schedule is due; None = never."""
