"""Publishes at a steady rate over several connections, each message in a separate transaction.

`python bench/steady_publisher.py RATE SECONDS CONNECTIONS FILE` publishes to the topic `marked` (the database is in
PGROUSE_DSN), at random times, as independent clients do, and records in FILE what it published and when it called, as
the handler `mark` does.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from pathlib import Path

import psycopg

PUBLISH = b"INSERT INTO messages.message (topic, payload) VALUES ('marked', jsonb_build_object('n', %s::bigint))"


async def publish(first: int, step: int, rate: float, until: float) -> dict[int, int]:
    """Publish first, first + step, ... until this time of the monotonic clock; return the time of each call."""
    called: dict[int, int] = {}
    # The seed is fixed: each run publishes at the same times.
    gaps = random.Random(first)
    conn = await psycopg.AsyncConnection.connect(os.environ["PGROUSE_DSN"], autocommit=True, prepare_threshold=0)
    async with conn:
        due = time.monotonic()
        while (due := due + gaps.expovariate(rate)) < until:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            number = first + step * len(called)
            called[number] = time.monotonic_ns()
            await conn.execute(PUBLISH, [number])
    return called


async def main(rate: float, seconds: float, connections: int) -> str:
    """Publish, and return a line for each call."""
    until = time.monotonic() + seconds
    each = await asyncio.gather(*(publish(n, connections, rate / connections, until) for n in range(connections)))
    return "".join(f"{number} {at}\n" for called in each for number, at in called.items())


if __name__ == "__main__":
    Path(sys.argv[4]).write_text(asyncio.run(main(float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))))
