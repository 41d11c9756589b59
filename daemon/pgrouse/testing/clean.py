"""An empty queue for each test."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence

import psycopg
from psycopg import sql

from pgrouse.client.call import run
from pgrouse.client.queries.worker import RegisteredWorker, find_workers
from pgrouse.database import search_path
from pgrouse.database.connection_schema import rendering

# The name of a test database, as frameworks usually choose it.
OF_TESTS = re.compile(r"(^|[_-])(py)?tests?([_-]|\d|$)", re.IGNORECASE)
# Tables that migrations fill.
KEPT_TABLES = ("migration", "topic", "inherited_policy", "low_water_mark", "alert_threshold", "mutex", "signing_key")
# Tables of what was configured, and of what runs: workers, waits, web servers.
CONFIGURED_TABLES = ("alert_sink", "audit", "channel", "schedule", "schedule_run", "silence", "subscription", "token")
RUNNING_TABLES = (
    *("expected_result", "lease", "measure", "sleeper", "tick_cursor", "tick_mark", "waiter"),
    *("web_request", "web_session", "worker", "worker_measure"),
)
# How often tables are locked again after a deadlock with a worker, or after a wait for one.
TRIES = 20


def clean(conn: psycopg.Connection, *, database: str | None = None, messages_only: bool = False) -> None:
    """Empty the queue between tests: messages, archive, policies, schedules and all counters.

    It is committed with the connection's transaction.

    Args:
        conn: a connection to a test database in which no worker runs.
        database: the name of the database, needed if `test` is not a part of the name, as it is in test_shop and
            shop_tests.
        messages_only: leave policies, schedules, subscriptions, tokens and workers as they are. So workers may run: a
            message that one of them is processing is gone as if it were cancelled.

    Raises:
        RuntimeError: it is another database, or a worker runs in it and would lose its policies and schedules; nothing
            was deleted.
    """
    _check_name(conn, database)
    if messages_only:
        _clean_beside_workers(conn)
        return
    with conn.transaction(), search_path.fixed(conn), rendering(conn):
        # From here on no worker can start.
        conn.execute("LOCK TABLE messages.worker IN ACCESS EXCLUSIVE MODE")
        _check_no_worker(conn)
        # Delete this first: the deletion is audited.
        conn.execute("DELETE FROM messages.topic WHERE topic <> '*'")
        _truncate(conn, KEPT_TABLES)
        conn.execute("DELETE FROM messages.mutex WHERE name <> ''")


def _clean_beside_workers(conn: psycopg.Connection) -> None:
    """Remove the messages, in a savepoint that is repeated where a worker holds a table."""
    for left in reversed(range(TRIES)):
        try:
            with conn.transaction(), search_path.fixed(conn), rendering(conn):
                conn.execute("SET LOCAL lock_timeout = '1s'")
                _truncate(conn, (*KEPT_TABLES, *CONFIGURED_TABLES, *RUNNING_TABLES))
        except (psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable):
            if not left:
                raise
        else:
            return


def _truncate(conn: psycopg.Connection, kept: Sequence[str]) -> None:
    names = conn.execute(
        """
        SELECT c.relname FROM pg_class AS c
        WHERE c.relnamespace = 'messages'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
          AND c.relname <> ALL (%s)
        ORDER BY c.relname
        """,
        [list(kept)],
    ).fetchall()
    tables = sql.SQL(", ").join(sql.Identifier("messages", name) for (name,) in names)
    conn.execute(sql.SQL("TRUNCATE {}").format(tables))


def _check_name(conn: psycopg.Connection, database: str | None) -> None:
    name = conn.info.dbname
    if database is None and not OF_TESTS.search(name):
        raise RuntimeError(
            f"clean() deletes all messages, policies and schedules, and the database {name} is none of tests by "
            "its name: connect to one of "
            f'testing.database(), or say that it is one: clean(conn, database="{name}")'
        )
    if database not in (None, name):
        raise RuntimeError(f"clean(database={database!r}): the connection is one to the database {name}")


def _check_no_worker(conn: psycopg.Connection) -> None:
    found = [each for each in run(conn, find_workers()) if each.alive and not _is_dead(each)]
    if alive := [f"{each.name} ({each.host}, process {each.pid})" for each in found]:
        raise RuntimeError(
            f"clean() deletes the policies and schedules of workers, and in the database {conn.info.dbname} "
            f"run {', '.join(alive)}: "
            "stop them before, as the fixture pgrouse_worker does at the end of its test, "
            "or empty the rest: clean(conn, messages_only=True)"
        )


def _is_dead(worker: RegisteredWorker) -> bool:
    """Whether the process of a worker has certainly ended, for example because a test killed it."""
    if worker.kind != "daemon" or worker.host != socket.gethostname():
        return False
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
