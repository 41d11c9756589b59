"""messages.examine_connections: how many connections are left."""

from __future__ import annotations

import pytest

from tests.server.postgres import Database
from tests.sql.examined import examine
from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server


@pytest.fixture
def queue(own_database: Database) -> Queue:
    """A database with a connection limit that the test may change."""
    return Queue(own_database.connect())


def test_with_enough_connections_there_is_no_finding(queue: Queue) -> None:
    found = examine(queue, "connections").of("connections")

    assert found.level == "ok"
    assert "that the server allows" in found.what


def test_a_role_that_cannot_see_other_sessions_counts_them_too(queue: Queue, own_database: Database) -> None:
    own_database.connect()
    seen = examine(queue, "connections").of("connections").what
    with queue.conn.transaction():
        queue.conn.execute("SET LOCAL ROLE messages_analyst")
        unseen = examine(queue, "connections").of("connections").what

    assert int(unseen.split()[0]) >= int(seen.split()[0])


def test_a_limit_of_the_database_is_reported_when_it_is_nearly_or_fully_reached(
    queue: Queue, own_database: Database
) -> None:
    queue.conn.execute(f"ALTER DATABASE {own_database.name} CONNECTION LIMIT 5".encode())
    three = [own_database.connect() for _ in range(3)]
    found = examine(queue, "connections").of("connections")
    fifth = own_database.connect()
    full = examine(queue, "connections").of("connections")

    assert (found.level, full.level) == ("warn", "fail")
    assert found.what == f"4 of the 5 connections that the database {own_database.name} allows are used"
    queue.conn.execute(full.fix.encode())
    assert examine(queue, "connections").of("connections").level == "ok"
    for conn in (*three, fifth):
        conn.close()
