"""messages.register_worker: adds a worker to the registry."""

from __future__ import annotations

from tests.sql.queue import Queue

WORKERS = "SELECT name, host, pid, version, topics, concurrency, stopping FROM messages.worker"


def test_a_worker_is_added_to_the_registry(queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 42, "1.0", ["a", "b"], 10)

    assert tuple(queue.row(WORKERS)) == ("w", "host", 42, "1.0", ["a", "b"], 10, False)


def test_a_restarted_worker_replaces_its_row(queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 42, "1.0", ["a"], 10)
    queue.call("touch_worker", "w", {}, True)
    started_at = queue.value("SELECT started_at FROM messages.worker")

    queue.call("register_worker", "w", "host", 43, "1.1", ["b"], 20)

    assert tuple(queue.row(WORKERS)) == ("w", "host", 43, "1.1", ["b"], 20, False)
    assert queue.value("SELECT seen_at > started_at FROM messages.worker") is True
    assert queue.value("SELECT started_at FROM messages.worker") == started_at
