"""messages.lock_consumer: one session at a time holds the name of a consumer."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.server.postgres import Database
from tests.sql.queue import Queue


def test_one_session_holds_it_with_the_rights_of_its_role(own_queue: Queue, own_database: Database) -> None:
    second = Queue(own_database.connect())
    for queue in (own_queue, second):
        queue.conn.execute("SET ROLE messages_worker")

    assert own_queue.call("lock_consumer", "n") is True
    assert second.call("lock_consumer", "n") is False


def test_its_names_are_separate_from_other_kinds(own_queue: Queue) -> None:
    own_queue.call("lock_consumer", "n")

    assert own_queue.value("SELECT kind FROM messages.lease") == "consumer"


def test_a_publisher_is_refused(own_queue: Queue) -> None:
    own_queue.conn.execute("SET ROLE messages_publisher")

    with pytest.raises(errors.InsufficientPrivilege):
        own_queue.call("lock_consumer", "n")
