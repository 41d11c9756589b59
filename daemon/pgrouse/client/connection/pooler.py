"""A pooler between a connection and the server: is there one, and can statements be prepared through it?

When a client connects, a pooler tells it a process id that is not the server's. In transaction mode each transaction
runs in another session of the server. That session does not know a statement that was prepared in another one, and may
know a different one by the same name. A pooler that keeps prepared statements gives them names of its own in each
session: that is tried, in one transaction. Otherwise nothing is prepared. Session mode looks the same from here, and is
treated the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import psycopg
from psycopg import capabilities, errors

from pgrouse.database.run_sync import run_sync

AnyConnection: TypeAlias = "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]"
Execute = Callable[..., Awaitable["psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]"]]

IS_DIRECT = b"SELECT FROM (SELECT pg_catalog.pg_backend_pid() AS pid) AS me WHERE me.pid OPERATOR(pg_catalog.=) %s"
# A row if psycopg's name of this statement, or of another client's, is its name in the session too.
PREPARED_HERE = rb"SELECT FROM pg_catalog.pg_prepared_statements AS s WHERE s.name OPERATOR(pg_catalog.~~) '\_pg3\_%'"
LOST = (errors.DuplicatePreparedStatement, errors.InvalidSqlStatementName)


def is_direct(conn: psycopg.Connection[Any]) -> bool:
    """Whether no pooler is between."""
    return run_sync(_is_direct(conn, _blocking(conn)))


def adapt(conn: psycopg.Connection[Any], *, direct: bool) -> None:
    """Prepare no statements on a new autocommit connection if a pooler would lose them.

    direct: whether there is no pooler.
    """
    run_sync(_adapt(conn, _blocking(conn), direct=direct))


async def adapt_async(conn: psycopg.AsyncConnection[Any], *, direct: bool) -> None:
    """Do the same with an async one."""
    await _adapt(conn, conn.execute, direct=direct)


def configure(conn: psycopg.Connection[Any]) -> None:
    """Find out whether there is a pooler, and adapt a new autocommit connection of a pool to it."""
    run_sync(_configure(conn, _blocking(conn)))


async def configure_async(conn: psycopg.AsyncConnection[Any]) -> None:
    """Do the same with an async one."""
    await _configure(conn, conn.execute)


def _blocking(conn: psycopg.Connection[Any]) -> Execute:
    async def execute(*args: Any, **options: Any) -> psycopg.Cursor[Any]:
        return conn.execute(*args, **options)

    return execute


async def _configure(conn: AnyConnection, execute: Execute) -> None:
    if conn.prepare_threshold is not None:
        await _adapt(conn, execute, direct=await _is_direct(conn, execute))


async def _is_direct(conn: AnyConnection, execute: Execute) -> bool:
    return (await execute(IS_DIRECT, [conn.info.backend_pid], prepare=False)).rowcount == 1


async def _adapt(conn: AnyConnection, execute: Execute, *, direct: bool) -> None:
    if direct or conn.prepare_threshold is None:
        return
    # Without that, psycopg discards a prepared statement by SQL, where a pooler does not see its name.
    if not (capabilities.has_send_close_prepared() and await _keeps_prepared(conn, execute)):
        conn.prepare_threshold = None


async def _keeps_prepared(conn: AnyConnection, execute: Execute) -> bool:
    """Prepare a statement and look at its name in the session.

    It is closed again before the session is another client's.
    """
    usual, conn.prepared_max = conn.prepared_max, 0  # so psycopg closes it at once
    await execute(b"BEGIN", prepare=False)
    try:
        return (await execute(PREPARED_HERE, prepare=True)).rowcount == 0
    except LOST:
        return False
    finally:
        conn.prepared_max = usual
        await execute(b"ROLLBACK", prepare=False)
