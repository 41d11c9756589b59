"""Stopping a running handler from outside."""

from __future__ import annotations

import asyncio
from enum import Enum


class Why(Enum):
    """Why a running handler is stopped from outside."""

    TIMED_OUT = "timed_out"
    LOST = "lost"
    DRAINED = "drained"


def is_closed() -> bool:
    """Whether the coroutine that runs is being closed, by no task, rather than that its handler raised GeneratorExit by itself."""
    return asyncio.current_task() is None
