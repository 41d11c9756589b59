"""What the names in a statement mean on a connection of ours: PostgreSQL's own, whatever the path of the role or the database says.

A role that may create objects in a schema of that path could put a function or an operator there that fits better than PostgreSQL's own, and it would
run with the rights of the connection. So the path is fixed by the first statement of each connection of ours: see session_settings. Connections of
users and handlers keep theirs, which their own statements need: what we execute there names the schema of each function, operator and type, or
runs with the path fixed for as long as it takes.
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
