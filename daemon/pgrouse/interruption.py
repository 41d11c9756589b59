"""Stopping a running handler from outside."""

from __future__ import annotations

import asyncio
from enum import Enum


class Why(Enum):
    """Why a running handler is stopped from outside."""

    TIMED_OUT = "timed_out"
    LOST = "lost"
    DRAINED = "drained"


def comes_from_outside(error: BaseException) -> bool:
    """Whether the task was cancelled or closed, rather than that the handler raised CancelledError or GeneratorExit by itself."""
    me = asyncio.current_task()
    return me is None or (isinstance(error, asyncio.CancelledError) and me.cancelling() > 0)
