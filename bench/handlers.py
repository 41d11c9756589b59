"""The handlers of the benchmarks, run by the daemon that is measured."""

from __future__ import annotations

import asyncio
import os
import time
from functools import cache
from typing import Any

from bench.digest import digest
from bench.peers.programs.tally import Tally

from pgrouse import AsyncContext

NAP_S = 0.005


async def nothing(payload: Any) -> None:
    """Do nothing with a decoded payload."""


def nothing_in_thread(payload: Any) -> None:
    """Do nothing, in a thread."""


async def nap(payload: Any) -> None:
    """Wait as long as a short request takes."""
    await asyncio.sleep(NAP_S)


async def hash_many(payload: dict[str, Any]) -> None:
    """Use 0.5 ms of CPU."""
    digest(payload["text"])


async def insert(payload: dict[str, int], ctx: AsyncContext) -> None:
    """Write one row, in the transaction that completes the message."""
    async with ctx.transaction() as conn:
        await conn.execute("INSERT INTO effect (n) VALUES (%s)", [payload["n"]])


async def mark(payload: dict[str, int]) -> None:
    """Record the start: one line `n nanoseconds` of CLOCK_MONOTONIC, which all processes share."""
    began = time.monotonic_ns()
    os.write(_marks(), f"{payload['n']} {began}\n".encode())


async def tally(payload: dict[str, int]) -> None:
    """Count, as the programs of the other queues do."""
    _tally()(payload["n"])


@cache
def _tally() -> Tally:
    return Tally(os.environ["PGROUSE_BENCH_MARKS"], int(os.environ["PGROUSE_BENCH_MESSAGES"]))


_opened: list[int] = []


def _marks() -> int:
    if not _opened:
        _opened.append(os.open(os.environ["PGROUSE_BENCH_MARKS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    return _opened[0]
