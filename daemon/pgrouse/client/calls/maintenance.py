"""The tick, and what operators run by hand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pgrouse.client.call import Call, function_call, interval, row_call, rows_call, value
from pgrouse.config.duration import AnyDuration


@dataclass(frozen=True, slots=True)
class TickTask:
    """How much one task of a tick did; -1 = it failed."""

    task: str
    count: int


@dataclass(frozen=True, slots=True)
class PurgedPages:
    """How many messages were deleted, and where to continue; None = done."""

    deleted: int
    place: str | None


def tick(
    caller: str | None = None, limit: int | None = None, unless_within: AnyDuration | None = None
) -> Call[list[TickTask]]:
    """Run all maintenance once; nothing if another one runs.

    Args:
        caller: cron, daemon or, unless given, hand.
        limit: how much each task does at most; 1,000 unless given.
        unless_within: nothing if the last tick of this caller is younger.
    """
    return rows_call(
        "tick", TickTask, caller=caller, limit=limit, unless_within=interval(unless_within, "unless_within")
    )


def run_maintenance(task: str) -> Call[int]:
    """Run one task: expire_locks, expire_messages or purge; how much it did."""
    return function_call("run_maintenance", value, task=task)


def purge_archive(
    before: datetime, topic: str | None = None, place: str | None = None, pages: int | None = None
) -> Call[PurgedPages]:
    """Delete messages that ended before a time, some pages per call.

    Args:
        before: when.
        topic: of this topic; None = of all.
        place: where the call before ended; None = from the beginning.
        pages: how many; 1,000 unless given.
    """
    return row_call("purge_archive", PurgedPages, before=before, topic=topic, place=place, pages=pages)
