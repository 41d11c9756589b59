"""messages.unregister_worker: removes a worker from the registry."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_only_this_worker_and_its_flag_are_deleted(queue: Queue) -> None:
    for name in ("a", "b"):
        queue.call("register_worker", name, "host", 42, "1.0", ["t"], 10)
        queue.arm(name)

    queue.call("unregister_worker", "a")

    assert [row.name for row in queue.rows("SELECT name FROM messages.worker")] == ["b"]
    assert [row.worker for row in queue.rows("SELECT worker FROM messages.sleeper")] == ["b"]


def test_an_unregistered_worker_may_call_it(queue: Queue) -> None:
    assert queue.rows("SELECT messages.unregister_worker('unregistered')") != []
