"""messages.lock_consumer: one session at a time has the name."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.server.postgres import Database
from tests.sql.queue import Queue


def test_one_session_has_it_with_the_rights_of_its_role(own_queue: Queue, own_database: Database) -> None:
    second = Queue(own_database.connect())
    for queue in (own_queue, second):
        queue.conn.execute("SET ROLE messages_worker")

    assert own_queue.call("lock_consumer", "n") is True
    assert second.call("lock_consumer", "n") is False


def test_it_is_of_its_own_kind(own_queue: Queue) -> None:
    own_queue.call("lock_consumer", "n")

    assert own_queue.value("SELECT kind FROM messages.lease") == "consumer"


def test_a_publisher_cannot(own_queue: Queue) -> None:
    own_queue.conn.execute("SET ROLE messages_publisher")

    with pytest.raises(errors.InsufficientPrivilege):
        own_queue.call("lock_consumer", "n")
