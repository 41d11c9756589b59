"""messages.drain_worker: records that a worker is asked to stop, by whom and since when."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_the_row_of_the_worker_has_the_user_and_the_time(queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 1, "0", ["t"], 1)
    queue.row("SELECT set_config('messages.actor', 'ana', false)")

    assert queue.call("drain_worker", "w") is True

    first = queue.row("SELECT * FROM messages.worker")
    assert first.drain_asked_by == "ana"
    recorded = queue.row("SELECT * FROM messages.audit")
    assert (recorded.actor, recorded.action, recorded.target) == ("ana", "drain_worker", "w")
    queue.call("drain_worker", "w")
    assert queue.value("SELECT drain_asked_at FROM messages.worker") == first.drain_asked_at


def test_an_unregistered_worker_is_not_asked(queue: Queue) -> None:
    assert queue.call("drain_worker", "unregistered") is False
