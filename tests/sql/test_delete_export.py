"""messages.delete_export: the retention waits no longer."""

from __future__ import annotations

from tests.sql.exports import export
from tests.sql.queue import Queue


def test_it_is_gone_and_the_others_stay(queue: Queue) -> None:
    export(queue, "a")
    export(queue, "b")

    assert queue.call("delete_export", "a") is True
    assert [row.name for row in queue.rows("SELECT name FROM messages.export_cursor")] == ["b"]


def test_one_that_is_not_there_is_nothing_to_forget(queue: Queue) -> None:
    assert queue.call("delete_export", "a") is False
