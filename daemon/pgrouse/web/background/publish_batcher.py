"""Publishes that come one by one at the same time, in one statement and one commit.

These are the publishes that came while the last statement was under way.

Only what cannot wait for anybody else: messages without a key, small ones, and while no topic has a policy that
publishing looks at. All other publishes, and those that the server refuses, run separately, so that no request pays for
the message of another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import psycopg

from pgrouse.publishing.json_rows import INSERT, row_json
from pgrouse.web.access.database_pool import Connection, DatabasePool

# The maximum of one batch, in messages and in characters; two batches may be under way.
MAX_MESSAGES = 500
MAX_CHARS = 4_000_000
LARGE_CHARS = 65_536
MAX_BATCHES = 2


class PublishBatcher:
    """Gathers the publishes of one web server.

    Args:
        db: where they go.
    """

    def __init__(self, db: DatabasePool) -> None:
        self.db = db
        self._waiting: deque[tuple[str, asyncio.Future[int | None]]] = deque()
        self._running: set[asyncio.Task[None]] = set()

    async def publish(self, columns: dict[str, Any]) -> int | None:
        """Publish one message; return its id, None: it has to go by itself, and nothing was published.

        Raises:
            psycopg.Error: the database is away.
        """
        if "key" in columns:
            return None
        text = row_json(columns)
        if len(text) > LARGE_CHARS:
            return None
        done: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((text, done))
        if len(self._running) < MAX_BATCHES:
            task = asyncio.create_task(self._run(), name="publish_batcher")
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        try:
            return await done
        finally:
            del done  # the exception that it has got has this frame in its traceback

    async def _run(self) -> None:
        while self._waiting:
            batch = self._take_batch()
            try:
                ids = await self._insert([text for text, _ in batch])
            except BaseException as error:
                _fail(batch, _as_exception(error))
                if not isinstance(error, Exception):
                    raise
                batch.clear()  # the exception that their futures have got has this frame in its traceback
                continue
            for number, (_, done) in enumerate(batch):
                if not done.done():
                    done.set_result(ids[number] if ids else None)

    def _take_batch(self) -> list[tuple[str, asyncio.Future[int | None]]]:
        batch: list[tuple[str, asyncio.Future[int | None]]] = []
        chars = 0
        while self._waiting and len(batch) < MAX_MESSAGES and chars < MAX_CHARS:
            batch.append(self._waiting.popleft())
            chars += len(batch[-1][0])
        return batch

    async def _insert(self, texts: list[str]) -> list[int]:
        """Publish all of them; nothing and [] if the server refuses one."""
        async with self.db.connection() as conn:
            try:
                async with conn.transaction():
                    return await _insert_rows(conn, texts)
            except psycopg.OperationalError:
                raise
            except (psycopg.Error, _PolicyChanged):
                return []


def _fail(batch: list[tuple[str, asyncio.Future[int | None]]], error: Exception) -> None:
    for _, done in batch:
        if not done.done():
            done.set_exception(error)


class _PolicyChanged(Exception):
    """Fewer were inserted than given: some policy came in the midst of it."""


async def _insert_rows(conn: Connection, texts: list[str]) -> list[int]:
    rows = await (await conn.execute(INSERT, [f"[{','.join(texts)}]"])).fetchall()
    if rows and len(rows) != len(texts):
        raise _PolicyChanged
    return [row["id"] for row in rows]


def _as_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else psycopg.OperationalError("the server stops")
