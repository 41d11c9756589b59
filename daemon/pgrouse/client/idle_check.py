"""Whether an idle connection still works, as a pool asks before it lends one."""

from __future__ import annotations

import select
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg_pool import AsyncConnectionPool, ConnectionPool


async def check_idle_async(conn: AsyncConnection[Any]) -> None:
    """Check an idle connection, with a round trip only if the server has sent something.

    An idle connection receives nothing but its end: a server that stops or terminates it says so, and closes the
    socket. A peer that died without a word is found by neither; the timeouts of TCP end the wait for it.

    Raises:
        psycopg.OperationalError: it is at its end.
    """
    if _has_input(conn.fileno()):
        await AsyncConnectionPool.check_connection(conn)


def check_idle(conn: Connection[Any]) -> None:
    """Check as `check_idle_async` does, on a blocking connection."""
    if _has_input(conn.fileno()):
        ConnectionPool.check_connection(conn)


def _has_input(fd: int) -> bool:
    """Whether something can be read from a socket, its end included. True where the system cannot tell."""
    if not hasattr(select, "poll"):  # Windows
        return True
    socket = select.poll()
    socket.register(fd, select.POLLIN)
    return bool(socket.poll(0))
