"""messages.release_lease: a session releases its own lease, and no other."""

from __future__ import annotations

from tests.server.postgres import Database
from tests.sql.queue import Queue


def test_a_released_lease_is_free_and_leaves_no_lock(own_queue: Queue, own_database: Database) -> None:
    second = Queue(own_database.connect())
    own_queue.call("take_lease", "export", "n")

    assert own_queue.call("release_lease", "export", "n") is True
    assert own_queue.rows("SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()") == []
    assert second.call("take_lease", "export", "n") is True


def test_a_lease_of_another_session_stays(own_queue: Queue, own_database: Database) -> None:
    second = Queue(own_database.connect())
    own_queue.call("take_lease", "export", "n")

    assert second.call("release_lease", "export", "n") is False
    assert second.call("take_lease", "export", "n") is False


def test_a_lease_that_was_never_taken_is_not_released(own_queue: Queue) -> None:
    assert own_queue.call("release_lease", "export", "n") is False
