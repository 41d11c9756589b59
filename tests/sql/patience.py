"""Functions that wait for a lock for a short time only: a machine that stands still for a moment would decide what a test sees."""

from __future__ import annotations

from tests.sql.queue import Queue


def give_time(queue: Queue, function: str, written: str) -> None:
    """Let a function of this database, which must be the test's own, wait for a minute where `written` is the time that it waits."""
    definition = queue.value("SELECT pg_get_functiondef(%s::regproc)", [f"messages.{function}"])
    assert definition.count(f"'{written}'") == 1
    queue.conn.execute(definition.replace(f"'{written}'", "'60s'").encode())
