"""The connections of pools, which log when a pool cannot connect, as loops log it.

psycopg logs each try of each pool as a text, with the addresses of objects in it; `logging/log.py` switches that off.
"""

from __future__ import annotations

from typing import Any, Self

import psycopg
from psycopg.rows import Row

from pgrouse.process.backoff import FailureLog

# The key of a pool's `kwargs` that names its log of failures.
FAILURES = "failures"


class AsyncPoolConnection(psycopg.AsyncConnection[Row]):
    """A connection of a pool for coroutines."""

    @classmethod
    async def connect(cls, conninfo: str = "", **kwargs: Any) -> Self:
        """Connect, and record in `failures` whether this succeeds."""
        failures: FailureLog = kwargs.pop(FAILURES)
        try:
            conn = await super().connect(conninfo, **kwargs)
        except psycopg.OperationalError as error:
            failures.failed(error)
            raise
        failures.recovered()
        return conn


class PoolConnection(psycopg.Connection[Row]):
    """A connection of a pool for threads."""

    @classmethod
    def connect(cls, conninfo: str = "", **kwargs: Any) -> Self:
        """Connect, and record in `failures` whether this succeeds."""
        failures: FailureLog = kwargs.pop(FAILURES)
        try:
            conn = super().connect(conninfo, **kwargs)
        except psycopg.OperationalError as error:
            failures.failed(error)
            raise
        failures.recovered()
        return conn
