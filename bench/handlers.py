"""The handlers of the benchmarks, run by the daemon that is measured."""

from __future__ import annotations

import os
import time
from typing import Any


async def nothing(payload: Any) -> None:
    """Do nothing with a payload, which was decoded."""


async def mark(payload: dict[str, int]) -> None:
    """Record the start: one line `n nanoseconds` of CLOCK_MONOTONIC, which all processes share."""
    began = time.monotonic_ns()
    os.write(_marks(), f"{payload['n']} {began}\n".encode())


_opened: list[int] = []


def _marks() -> int:
    if not _opened:
        _opened.append(os.open(os.environ["PGROUSE_BENCH_MARKS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    return _opened[0]
