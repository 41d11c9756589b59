"""messages.prune_mutexes: deletes names of mutexes and leases that are no longer needed."""

from __future__ import annotations

import pytest

from tests.server.postgres import Database
from tests.sql.queue import Queue

NAMES = "SELECT name FROM messages.mutex WHERE name <> '' ORDER BY name"


def prune(queue: Queue) -> int:
    return int(queue.value("SELECT messages.prune_mutexes(100)"))


def test_mutexes_of_topics_without_a_message_are_deleted_and_the_others_stay(queue: Queue) -> None:
    fixed = queue.value("SELECT count(*) FROM messages.mutex")
    for topic in ("empty", "ready", "channels", "running"):
        queue.call("lock_mutex", "topic", topic)
        queue.call("lock_mutex", "channels", topic)
    queue.publish("running")
    queue.claim("running")
    queue.publish("ready")
    queue.publish("channels", channel="c")

    assert prune(queue) == 2

    assert {row.name for row in queue.rows(NAMES)} == {"ready", "channels", "running"}
    assert queue.value("SELECT count(*) FROM messages.mutex WHERE name = ''") == fixed


def test_a_held_mutex_stays(queue: Queue, other: Queue) -> None:
    other.call("lock_mutex", "topic", "t")
    with other.conn.transaction():
        other.call("lock_mutex", "topic", "t")

        assert prune(queue) == 0


def test_leases_of_sessions_that_are_gone_are_deleted(own_queue: Queue, own_database: Database) -> None:
    own_queue.conn.execute("INSERT INTO messages.lease (kind, name, lock_key, pid) VALUES ('export', 'gone', 1, 1)")
    Queue(own_database.connect()).call("take_lease", "export", "held")

    assert prune(own_queue) == 1
    assert own_queue.value("SELECT name FROM messages.lease") == "held"


@pytest.mark.parametrize("kind", ["topic", "channels"])
def test_a_deleted_mutex_is_created_again_when_it_is_needed(queue: Queue, kind: str) -> None:
    queue.call("lock_mutex", kind, "t")
    prune(queue)

    assert queue.call("lock_mutex", kind, "t") is True
