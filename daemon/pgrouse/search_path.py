"""What the names in a statement mean on a connection of ours: PostgreSQL's own, whatever the path of the role or the database says.

A role that may create objects in a schema of that path could put a function or an operator there that fits better than PostgreSQL's own, and it would
run with the rights of the connection. So the path is fixed by the first statement of each connection. That is not done where the session
may belong to others too (behind a pooler), where nothing is prepared either, nor on connections of users and handlers, whose own statements need their path:
what we execute there names the schema of each function, operator and type.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

PATH = "pg_catalog, pg_temp"
# For one transaction: also through a pooler. As the first statement in it.
LOCAL = b"SET LOCAL search_path = pg_catalog, pg_temp"
# For a session, if it is the caller's alone: a pooler invents the process id that it tells.
FIX = b"""
    SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)
    WHERE pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) %s
"""
PROCESS = b"SELECT pg_catalog.pg_backend_pid()"
READ = b"SELECT pg_catalog.current_setting('search_path')"
WRITE = b"SELECT pg_catalog.set_config('search_path', %s, %s)"

C = TypeVar("C", bound="psycopg.Connection[Any]")
A = TypeVar("A", bound="psycopg.AsyncConnection[Any]")


def fix(conn: C) -> C:
    """Fix the path of a new connection; return it. One that fails is closed. Through a pooler it prepares no statements."""
    try:
        if conn.execute(FIX, [conn.info.backend_pid], prepare=False).rowcount == 0:
            conn.prepare_threshold = None
    except BaseException:
        conn.close()
        raise
    return conn


async def fix_async(conn: A) -> A:
    """Do the same with an async one."""
    try:
        if (await conn.execute(FIX, [conn.info.backend_pid], prepare=False)).rowcount == 0:
            conn.prepare_threshold = None
    except BaseException:
        await conn.close()
        raise
    return conn


@contextmanager
def fixed(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """Fix the path for a block on a connection of the caller's, in its transaction or a new one, and then restore it."""
    if not conn.autocommit:
        # Joins the transaction of the caller, or begins one; without this the block would commit.
        psycopg.Cursor(conn).execute(b"SELECT")
    with conn.transaction(), _replaced(conn, local=True):
        yield


@contextmanager
def fixed_session(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """Fix the path for a block that commits in between. Through a pooler it stays as it is: the next statement may be in another session."""
    cursor = psycopg.Cursor(conn, row_factory=tuple_row)
    if cursor.execute(PROCESS, prepare=False).fetchone() != (conn.info.backend_pid,):
        yield
        return
    with _replaced(conn, local=False):
        yield


@contextmanager
def _replaced(conn: psycopg.Connection[Any], *, local: bool) -> Iterator[None]:
    cursor = psycopg.Cursor(conn, row_factory=tuple_row)
    (before,) = cursor.execute(READ, prepare=False).fetchone() or ("",)
    cursor.execute(WRITE, [PATH, local], prepare=False)
    try:
        yield
    finally:
        # A transaction that failed is rolled back, and takes the path along.
        if not conn.closed and conn.info.transaction_status is not TransactionStatus.INERROR:
            cursor.execute(WRITE, [before, local], prepare=False)
