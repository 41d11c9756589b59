"""Handlers that record their start and their end by the clock of the database."""

from __future__ import annotations

import asyncio
import os

import psycopg

LOCK = asyncio.Lock()
CONNECTIONS = []


async def _connection():
    """Return the only connection of this process; psycopg serializes its use."""
    async with LOCK:
        if not CONNECTIONS:
            CONNECTIONS.append(await psycopg.AsyncConnection.connect(os.environ["RUNS"], autocommit=True))
    return CONNECTIONS[0]


async def run(payload, ctx):
    """Run for some seconds: {"for": seconds}. With {"fails": n} the first n attempts fail at once."""
    fails = ctx.attempt <= payload.get("fails", 0)
    conn = await _connection()
    cursor = await conn.execute(
        "INSERT INTO run (id, topic, channel, pid) VALUES (%s, %s, %s, %s) RETURNING nth",
        [ctx.id, ctx.topic, ctx.channel, os.getpid()],
    )
    (nth,) = await cursor.fetchone()
    if not fails:
        await asyncio.sleep(payload["for"])
    await conn.execute("UPDATE run SET ended = clock_timestamp() WHERE nth = %s", [nth])
    if fails:
        raise ZeroDivisionError("division by zero")


async def probe(payload, ctx):
    """Do nothing: what such a message waits for is the machine, not a limit."""
