"""A role that may only connect takes all memory of the server for locks.

The errors are not attributed to any message.
"""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from pgrouse.client.connection.database import may_be_caused_by_message
from tests.server.postgres import Database

pytestmark = pytest.mark.every_server


def test_a_claim_that_finds_no_memory_for_its_locks_blames_no_message(database: Database) -> None:
    claims = "SELECT * FROM messages.claim('w', '{t}', 1)"
    with database.connect() as worker, database.connect() as outsider:
        worker.execute("INSERT INTO messages.message (topic, payload) VALUES ('t', '1')")
        outsider.execute("SET ROLE pg_monitor")
        with pytest.raises(errors.OutOfMemory):
            outsider.execute("SELECT pg_advisory_lock(n) FROM generate_series(1, 10000000) AS n")

        with pytest.raises(errors.OutOfMemory) as failed:
            worker.execute(claims)

        assert not may_be_caused_by_message(failed.value)
        outsider.execute("SELECT pg_advisory_unlock_all()")
        assert worker.execute(claims).rowcount == 1


def test_a_message_that_takes_all_memory_of_a_session_is_still_suspected() -> None:
    assert may_be_caused_by_message(psycopg.errors.OutOfMemory("out of memory"))
