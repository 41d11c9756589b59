"""messages.snapshot_age: for how long vacuum has been kept from its work."""

from __future__ import annotations

import psycopg
import pytest

from tests.server.postgres import Database
from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server


def test_a_transaction_that_holds_a_snapshot_grows_old(own_database: Database) -> None:
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
def owner_sees_nobody(own_database: Database) -> None:
    """The owner of the schema is one who has no rights beyond it."""
    own_database.connect().execute("CREATE ROLE test_blind; ALTER FUNCTION messages.snapshot_age OWNER TO test_blind")


def test_who_may_not_see_the_sessions_of_others_is_not_told_that_there_are_none(
    own_database: Database, owner_sees_nobody: None
) -> None:
    queue = Queue(own_database.connect())
    try:
        assert queue.call("snapshot_age") is None
    finally:
        queue.conn.execute("ALTER FUNCTION messages.snapshot_age OWNER TO messages_owner; DROP ROLE test_blind")
