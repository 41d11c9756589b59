"""messages.release_lease: a session gives back what it has taken, and nothing else."""

from __future__ import annotations

from tests.server.postgres import Database
from tests.sql.queue import Queue


def test_what_is_given_back_is_free_and_leaves_no_lock(own_queue: Queue, own_database: Database) -> None:
    second = Queue(own_database.connect())
    own_queue.call("take_lease", "export", "n")

    assert own_queue.call("release_lease", "export", "n") is True
    assert own_queue.rows("SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()") == []
    assert second.call("take_lease", "export", "n") is True


def test_what_another_session_has_stays(own_queue: Queue, own_database: Database) -> None:
    second = Queue(own_database.connect())
    own_queue.call("take_lease", "export", "n")

    assert second.call("release_lease", "export", "n") is False
    assert second.call("take_lease", "export", "n") is False


def test_what_was_never_taken_is_not_given_back(own_queue: Queue) -> None:
    assert own_queue.call("release_lease", "export", "n") is False
