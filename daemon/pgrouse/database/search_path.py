"""Fixes the search path on pgrouse's connections.

Names in a statement mean PostgreSQL's objects, whatever path the role or the database sets.

Without this, a role that may create objects in a schema of that path could put a function or an operator there that
matches better than PostgreSQL's, and it would run with the rights of the connection. So the first statement of each
pgrouse connection fixes the path: see session_settings. Connections of users and handlers keep their path, which their
own statements need. Statements of pgrouse on these connections name the schema of each function, operator and type, or
run while the path is fixed for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

PATH = "pg_catalog, pg_temp"
PROCESS = b"SELECT pg_catalog.pg_backend_pid()"
READ = b"SELECT pg_catalog.current_setting('search_path')"
WRITE = b"SELECT pg_catalog.set_config('search_path', %s, %s)"


@contextmanager
def fixed(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """Fix the path for a block on the caller's connection, in its transaction or a new one, and then restore it."""
    if not conn.autocommit:
        # Joins the transaction of the caller, or begins one; without this the block would commit.
        psycopg.Cursor(conn).execute(b"SELECT")
    with conn.transaction(), _replaced(conn, local=True):
        yield


@contextmanager
def fixed_session(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """Fix the path for a block that commits in between.

    Through a pooler the path is not changed: the next statement may run in another session.
    """
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
        # A failed transaction is rolled back, which also restores the path.
        if not conn.closed and conn.info.transaction_status is not TransactionStatus.INERROR:
            cursor.execute(WRITE, [before, local], prepare=False)
