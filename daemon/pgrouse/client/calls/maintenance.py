"""The tick, and what operators run by hand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pgrouse.client.call import Call, function_call, interval, row_call, rows_call, value
from pgrouse.config.duration import AnyDuration


@dataclass(frozen=True, slots=True)
class TickTask:
    """A row of `messages.tick`."""

    task: str
    count: int


@dataclass(frozen=True, slots=True)
class PurgedPages:
    """The row of `messages.purge_archive`."""

    deleted: int
    place: str | None


def tick(
    caller: str | None = None, limit: int | None = None, unless_within: AnyDuration | None = None
) -> Call[list[TickTask]]:
    """Run all maintenance once."""
    return rows_call(
        "tick", TickTask, caller=caller, limit=limit, unless_within=interval(unless_within, "unless_within")
    )


def run_maintenance(task: str) -> Call[int]:
    """Run one task of the maintenance."""
    return function_call("run_maintenance", value, task=task)


def purge_archive(
    before: datetime, topic: str | None = None, place: str | None = None, pages: int | None = None
) -> Call[PurgedPages]:
    """Delete messages that ended before a time, some pages per call."""
    return row_call("purge_archive", PurgedPages, before=before, topic=topic, place=place, pages=pages)
