"""messages.delete_export: the retention no longer waits for the export."""

from __future__ import annotations

from tests.sql.exports import export
from tests.sql.queue import Queue


def test_the_export_is_deleted_and_the_others_stay(queue: Queue) -> None:
    export(queue, "a")
    export(queue, "b")

    assert queue.call("delete_export", "a") is True
    assert [row.name for row in queue.rows("SELECT name FROM messages.export_cursor")] == ["b"]


def test_an_unknown_export_deletes_nothing(queue: Queue) -> None:
    assert queue.call("delete_export", "a") is False
