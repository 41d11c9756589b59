"""What one worker may do to another, and to the queue: what is bounded, and what is not and documented."""

from __future__ import annotations

import psycopg
import pytest

from tests.server.postgres import Database
from tests.sql.queue import Queue

ARMED = (
    "SELECT pg_sequence_last_value('messages.armed_until') < extract(epoch FROM clock_timestamp() + interval '1 day')"
)


@pytest.fixture
def worker(database: Database) -> Queue:
    """A connection with the rights of a worker, and no more."""
    conn = database.connect()
    conn.execute("SET ROLE messages_worker")
    return Queue(conn)


@pytest.mark.every_server
@pytest.mark.parametrize("look_in", ["1000 years", "2 hours 1 s", "-1 s", "infinity", None])
def test_no_worker_sleeps_for_ever(worker: Queue, queue: Queue, look_in: str | None) -> None:
    refused: tuple[type[psycopg.Error], str] = (psycopg.errors.InvalidParameterValue, "look_in of worker zombie is")
    if look_in == "infinity" and worker.conn.info.server_version < 170000:
        refused = (psycopg.errors.InvalidDatetimeFormat, "invalid input syntax")  # there is no such interval

    with pytest.raises(refused[0], match=refused[1]):
        worker.row("SELECT messages.arm('zombie', NULL, %s::interval)", [look_in])

    assert queue.value("SELECT count(*) FROM messages.sleeper") == 0
    assert queue.value(ARMED)


def test_the_longest_poll_interval_of_a_daemon_is_accepted(worker: Queue) -> None:
    worker.row("SELECT messages.arm('w', NULL, %s * interval '1 s')", [3600 * 1.2])


@pytest.mark.every_server
def test_an_older_sleeper_without_an_end_is_deleted(queue: Queue, database: Database) -> None:
    queue.conn.execute(
        "INSERT INTO messages.sleeper (worker, armed_until, next_look_at) VALUES ('zombie', '4026-01-01', '3026-01-01')"
    )
    queue.conn.execute("SELECT messages.raise_armed_until('4026-01-01')")
    queue.arm("w")

    queue.row("SELECT messages.prune()")

    assert [row.worker for row in queue.rows("SELECT worker FROM messages.sleeper")] == ["w"]
    assert queue.value(ARMED)


@pytest.mark.parametrize("name", ["", "x" * 301, None])
def test_an_invalid_name_of_a_worker_is_refused(worker: Queue, name: str | None) -> None:
    with pytest.raises((psycopg.errors.InvalidParameterValue, psycopg.errors.NullValueNotAllowed)):
        worker.rows("SELECT * FROM messages.claim(%s, ARRAY['t'], 1)", [name])


# Actions that workers of one database can do to each other: docs/operating/security.md lists them.


def test_workers_can_release_stop_and_wake_each_other(worker: Queue, queue: Queue) -> None:
    published = queue.publish("t")
    worker.row("SELECT messages.register_worker('one', 'h', 1, '1', ARRAY['t'], 1)")
    worker.row("SELECT messages.arm('one', NULL, '1 minute')")
    claimed = worker.row("SELECT id, claim_id FROM messages.claim('one', ARRAY['t'], 1)")

    assert worker.value("SELECT messages.release_orphaned('one', '{}')") == [published]
    worker.row("SELECT messages.disarm('one')")
    worker.row("SELECT messages.unregister_worker('one')")

    # The former holder learns of it, and its settle changes nothing.
    assert worker.value("SELECT messages.complete(%s, %s)", [[claimed.id], [claimed.claim_id]]) == [published]
    assert queue.value("SELECT claim_id IS NULL FROM messages.message WHERE id = %s", [published])


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT messages.cancel('{1}')",
        "SELECT messages.drain_worker('w')",
        "SELECT messages.scale_worker('w', 1)",
        "SELECT payload FROM messages.message",
        "SELECT payload FROM messages.message_archive",
        "INSERT INTO messages.message (topic, payload) VALUES ('t', '1')",
        "UPDATE messages.topic SET max_attempts = 1",
        "DELETE FROM messages.worker",
        "SELECT * FROM messages.sleeper",
    ],
)
def test_functions_that_a_worker_may_not_call_are_refused(worker: Queue, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        worker.conn.execute(statement.encode())
