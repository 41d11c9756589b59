"""messages.snapshot_age: for how long a snapshot has kept vacuum from removing dead rows."""

from __future__ import annotations

import psycopg
import pytest

from tests.server.postgres import Database
from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server


def test_the_age_of_a_held_snapshot_grows(own_database: Database) -> None:
    queue = Queue(own_database.connect())
    assert queue.call("snapshot_age") == 0

    holder = own_database.connect()
    holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with holder.transaction():
        holder.execute("SELECT FROM messages.topic")
        first, second = queue.call("snapshot_age"), queue.call("snapshot_age")

    assert 0 < first < second
    assert queue.call("snapshot_age") == 0


@pytest.fixture
def owner_sees_no_sessions(own_database: Database) -> None:
    """Make the owner of the schema a role without any other rights."""
    own_database.connect().execute("CREATE ROLE test_blind; ALTER FUNCTION messages.snapshot_age OWNER TO test_blind")


def test_an_owner_that_cannot_see_other_sessions_gets_null(
    own_database: Database, owner_sees_no_sessions: None
) -> None:
    queue = Queue(own_database.connect())
    try:
        assert queue.call("snapshot_age") is None
    finally:
        queue.conn.execute("ALTER FUNCTION messages.snapshot_age OWNER TO messages_owner; DROP ROLE test_blind")
