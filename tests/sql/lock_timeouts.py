"""Longer lock timeouts: a machine that stops for a moment must not decide what a test sees."""

from __future__ import annotations

from tests.sql.queue import Queue


def extend_timeout(queue: Queue, function: str, written: str) -> None:
    """Make a function of this database wait up to a minute instead of the time in `written`.

    The database must be the test's own.
    """
    definition = queue.value("SELECT pg_get_functiondef(%s::regproc)", [f"messages.{function}"])
    assert definition.count(f"'{written}'") == 1
    queue.conn.execute(definition.replace(f"'{written}'", "'60s'").encode())
