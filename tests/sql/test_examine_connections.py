"""messages.examine_connections: how many are left."""

from __future__ import annotations

import pytest

from tests.server.postgres import Database
from tests.sql.examined import examine
from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server


@pytest.fixture
def queue(own_database: Database) -> Queue:
    """A database whose limit may be changed."""
    return Queue(own_database.connect())


def test_while_there_are_enough_all_is_well(queue: Queue) -> None:
    found = examine(queue, "connections").of("connections")

    assert found.level == "ok"
    assert "that the server allows" in found.what


def test_who_may_not_see_the_sessions_of_others_counts_them_all_the_same(queue: Queue, own_database: Database) -> None:
    own_database.connect()
    seen = examine(queue, "connections").of("connections").what
    with queue.conn.transaction():
        queue.conn.execute("SET LOCAL ROLE messages_analyst")
        unseen = examine(queue, "connections").of("connections").what

    assert int(unseen.split()[0]) >= int(seen.split()[0])


def test_a_limit_of_the_database_is_told_when_it_is_nearly_reached_and_when_it_is(
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
