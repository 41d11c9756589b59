"""What the user of the web server may do in the background: it may have fewer rights than a daemon, or a standby."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import psycopg

from pgrouse.client.connection import database
from pgrouse.client.connection.database import Database
from pgrouse.process.loop import Loop

# How long an answer is used; and how soon a standby is asked whether it still is one.
RECHECK_S = 60.0
MAY_CALL = b"""
  SELECT current_setting('transaction_read_only') = 'off' AND bool_and(has_function_privilege(p.oid, 'EXECUTE'))
  FROM pg_catalog.pg_proc AS p
  WHERE p.pronamespace = 'messages'::regnamespace AND p.proname = ANY (%s)"""


async def may_call(conn: psycopg.AsyncConnection[Any], functions: Sequence[str]) -> bool:
    """Return whether the user may call these functions, and something can be written."""
    row = await (await conn.execute(MAY_CALL, [list(functions)])).fetchone()
    return bool(row and row[0])


class Permission:
    """Whether the user may call some functions, asked at most once a minute.

    Args:
        db: where.
        name: of the connection that asks.
        functions: their names.
    """

    def __init__(self, db: Database, name: str, functions: Sequence[str]) -> None:
        self.db, self.name, self.functions = db, name, functions
        self._is_granted = False
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()

    async def is_granted(self) -> bool:
        """Return the answer."""
        async with self._asking:
            if time.monotonic() - self._asked_at >= RECHECK_S:
                self._is_granted = await self._ask()
                self._asked_at = time.monotonic()
        return self._is_granted

    async def _ask(self) -> bool:
        conn = await self.db.connect(self.name)
        try:
            return await may_call(conn, self.functions)
        finally:
            await database.close(conn)


class PermittedLoop:
    """A loop that does nothing while it may not."""

    def __init__(self, inner: Loop, permission: Permission) -> None:
        self.name, self.inner, self.permission = inner.name, inner, permission

    async def step(self) -> float:
        """Run a step of the loop, or wait."""
        return await self.inner.step() if await self.permission.is_granted() else RECHECK_S

    async def reset(self) -> None:
        """Close the connection of the loop."""
        await self.inner.reset()
