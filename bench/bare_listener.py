"""The smallest program that receives notifications: asyncio with one psycopg connection.

Everything above its cost is the cost of the daemon.

`python bench/bare_listener.py CHANNEL FILE` listens (the database is in PGROUSE_DSN) and records in FILE what it
receives and when, as the handler `mark` does; first the line `listening`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

import psycopg
from psycopg import sql


async def main(channel: str, marks: int) -> None:
    """Listen until killed."""
    conn = await psycopg.AsyncConnection.connect(os.environ["PGROUSE_DSN"], autocommit=True)
    await conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
    os.write(marks, b"listening 0\n")
    async for notify in conn.notifies():
        received = time.monotonic_ns()
        os.write(marks, f"{notify.payload} {received}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)))
