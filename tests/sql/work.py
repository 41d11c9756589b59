"""How much a statement does, in numbers that do not depend on the machine.

They are the rows that its plans look at, and the pages that they read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg

from tests.sql.queue import Queue

EXPLAIN = """
    LOAD 'auto_explain';
    SET auto_explain.log_min_duration = 0;
    SET auto_explain.log_nested_statements = on;
    SET auto_explain.log_analyze = on;
    SET auto_explain.log_timing = off;
    SET auto_explain.log_buffers = on;
    SET auto_explain.log_format = json;
    SET auto_explain.log_level = notice;
    SET client_min_messages = notice
"""
REMOVED = ("Rows Removed by Filter", "Rows Removed by Join Filter", "Rows Removed by Index Recheck")
PAGES = ("Shared Hit Blocks", "Shared Read Blocks")


class Work(NamedTuple):
    """What a statement did, with all statements of the functions that it called.

    Attributes:
        rows: that the nodes of its plans returned, or looked at and left out.
        pages: that it read, from memory or from disk.
    """

    rows: int
    pages: int

    def is_within(self, times: float, less: Work) -> bool:
        """Return whether this is at most this many times the other."""
        return self.rows <= times * less.rows and self.pages <= times * less.pages


def work(queue: Queue, statement: str, values: Sequence[Any] | dict[str, Any] = ()) -> Work:
    """Run a statement and return what it did."""
    with _plans(queue.conn) as plans:
        queue.rows(statement, values)
    return Work(sum(map(_rows, plans)), max(sum(plan.get(name, 0) for name in PAGES) for plan in plans))


@contextmanager
def _plans(conn: psycopg.Connection[Any]) -> Iterator[list[dict[str, Any]]]:
    plans: list[dict[str, Any]] = []

    def keep(notice: psycopg.errors.Diagnostic) -> None:
        _, _, plan = (notice.message_primary or "").partition("plan:\n")
        if plan:
            plans.append(json.loads(plan)["Plan"])

    conn.execute(EXPLAIN)
    conn.add_notice_handler(keep)
    try:
        yield plans
    finally:
        conn.remove_notice_handler(keep)
        conn.execute("SET auto_explain.log_min_duration = -1; RESET client_min_messages")


def _rows(plan: dict[str, Any]) -> int:
    each = plan["Actual Rows"] + sum(plan.get(name, 0) for name in REMOVED)
    return round(each * plan["Actual Loops"]) + sum(map(_rows, plan.get("Plans", ())))
