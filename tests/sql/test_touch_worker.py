"""messages.touch_worker: a sign of life of a worker."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.queue import Queue


def test_a_sign_of_life_updates_the_time_and_the_status(queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 42, "1.0", ["a"], 10)
    queue.conn.execute("UPDATE messages.worker SET seen_at = '2020-01-01'")

    assert queue.call("touch_worker", "w", {"in_flight": 3}, True) is True

    worker = queue.row("SELECT *, seen_at > clock_timestamp() - interval '1 minute' AS alive FROM messages.worker")
    assert (worker.alive, worker.status, worker.stopping) == (True, {"in_flight": 3}, True)


@pytest.mark.parametrize("status", ["[]", "null", "5"])
def test_a_status_is_an_object_as_those_who_read_it_expect(queue: Queue, status: str) -> None:
    queue.call("register_worker", "w", "host", 42, "1.0", ["a"], 10)

    with pytest.raises(psycopg.errors.CheckViolation):
        queue.rows("SELECT messages.touch_worker('w', %s::jsonb)", [status])


def test_an_unregistered_worker_is_reported(queue: Queue) -> None:
    assert queue.call("touch_worker", "unregistered", {}) is False
    assert queue.rows("SELECT * FROM messages.worker") == []


def test_a_locked_row_is_skipped_and_the_next_sign_counts(queue: Queue, other: Queue) -> None:
    queue.call("register_worker", "w", "host", 42, "1.0", ["a"], 10)
    other.conn.execute("SET lock_timeout = '2s'")
    with queue.conn.transaction():
        queue.call("drain_worker", "w")
        held = other.call("touch_worker", "w", {"in_flight": 3})
        assert other.value("SELECT status FROM messages.worker") == {}

    assert (held, other.call("touch_worker", "w", {"in_flight": 4})) == (True, True)
    worker = queue.row("SELECT * FROM messages.worker")
    assert worker.status == {"in_flight": 4}
    assert worker.drain_asked_at is not None
