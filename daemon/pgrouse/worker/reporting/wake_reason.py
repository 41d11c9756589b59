"""Why a claim is made, for the planner and for the metrics."""

from __future__ import annotations

from enum import StrEnum


class WakeReason(StrEnum):
    """Why a claim is made."""

    NOTIFY = "notify"  # a notification woke the daemon
    TIMER = "timer"  # a delayed message is due, or a limit may have room again
    POLL = "poll"  # no notification arrived for a poll interval
    BUSY = "busy"  # the last claim found something, a slot became free, or the daemon is about to fall asleep
