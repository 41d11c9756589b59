"""The tick, and what operators run by hand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pgrouse.client.call import Call, binding
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


@binding
def tick(
    caller: str | None = None, limit: int | None = None, unless_within: AnyDuration | None = None
) -> Call[list[TickTask]]:
    """Run all maintenance once."""


@binding
def run_maintenance(task: str) -> Call[int]:
    """Run one task of the maintenance."""


@binding
def purge_archive(
    before: datetime, topic: str | None = None, place: str | None = None, pages: int | None = None
) -> Call[PurgedPages]:
    """Delete messages that ended before a time, some pages per call."""
