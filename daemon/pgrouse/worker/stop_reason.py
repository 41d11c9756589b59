"""Stopping a running handler from outside."""

from __future__ import annotations

import asyncio
from enum import Enum


class StopReason(Enum):
    """Why a running handler is stopped from outside."""

    TIMED_OUT = "timed_out"
    LOST = "lost"
    DRAINED = "drained"


def is_being_closed() -> bool:
    """Whether the running coroutine is being closed (no task runs it), as opposed to a handler that raised GeneratorExit itself."""
    return asyncio.current_task() is None
