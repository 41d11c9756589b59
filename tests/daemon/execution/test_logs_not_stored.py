"""Log lines that cannot be stored hold up no settle."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from psycopg import sql

from pgrouse.client.call import run
from pgrouse.client.queries.message import AttemptLog, find_logs
from tests.daemon.process import Daemon, Fleet, Journal
from tests.server.deadline import eventually
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue

Start = Callable[..., Daemon]

KEEPING = {"handler": "chatty:say", "log_bytes": 10_000}
COUNT = 60


def logs(queue: Queue, message: int) -> list[AttemptLog]:
    return run(queue.conn, find_logs(message))


@pytest.fixture
def durable(private_server: Postgres) -> Iterator[Database]:
    """A database whose server the test may stop."""
    with private_server.new_database(template=private_server.migrated) as database:
        yield database
        private_server.place.start()


def raising(sqlstate: str) -> list[str]:
    return [
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql "
        f"AS $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '{sqlstate}'; END $$",
        "CREATE TRIGGER refuse BEFORE INSERT ON messages.attempt_log FOR EACH STATEMENT EXECUTE FUNCTION refuse()",
    ]


REASONS = {
    "the disk is full": raising("53100"),
    "the table refuses it": raising("23514"),
    "the right is missing": ["ALTER FUNCTION messages.save_logs RENAME TO save_no_logs"],
}


@pytest.mark.parametrize("steps", REASONS.values(), ids=REASONS)
def test_every_message_ends_at_once_and_once(start: Start, queue: Queue, steps: list[str]) -> None:
    for step in steps:
        queue.conn.execute(step.encode())
    queue.policy("job", max_attempts=2, backoff={"kind": "none"})
    start({"job": KEEPING})

    good = queue.publish_many(COUNT, "job", payload={})
    bad = queue.publish("job", payload={"raises": [1, 2]})
    eventually(lambda: queue.ids() == [])

    ended = queue.rows("SELECT result, attempts FROM messages.message_archive WHERE id = ANY (%s)", [good])
    assert {tuple(each) for each in ended} == {("success", 1)}
    assert (queue.archived(bad).result, queue.archived(bad).attempts) == ("failed", 2)
    assert logs(queue, bad) == []


@pytest.mark.long
def test_a_session_that_locks_the_table_holds_up_no_settle(start: Start, queue: Queue, database: Database) -> None:
    start({"job": KEEPING})
    with database.connect(autocommit=False) as other:
        other.execute("LOCK TABLE messages.attempt_log")

        ids = queue.publish_many(COUNT, "job", payload={})
        eventually(lambda: queue.ids() == [])

    assert queue.value("SELECT count(*) FROM messages.message_archive WHERE attempts = 1") == COUNT
    kept = queue.publish("job", payload={})
    eventually(lambda: logs(queue, kept))
    assert all(logs(queue, each) == [] for each in ids)


@pytest.mark.long
def test_an_attempt_that_ends_while_the_server_is_down_keeps_its_lines(
    fleet: Fleet, durable: Database, journal: Journal
) -> None:
    daemon = fleet.start(durable.connect(), {"job": {"handler": "chatty:hold", "log_bytes": 1000}}, dsn=durable.dsn)
    message = Queue(durable.connect()).publish("job")
    journal.entry("holds", message)

    durable.server.place.stop()
    daemon.open_gate()
    daemon.event("loop.failed", loop="claim-0")
    durable.server.place.start()

    queue = Queue(durable.connect())
    eventually(lambda: queue.archived(message))
    assert (queue.archived(message).result, len(logs(queue, message))) == ("success", 1)


def test_a_connection_that_breaks_while_lines_are_stored_loses_neither_them_nor_the_settle(
    start: Start, queue: Queue, database: Database
) -> None:
    queue.conn.execute(
        "CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 "
        "AS $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$"
    )
    queue.conn.execute(
        "CREATE TRIGGER stall BEFORE INSERT ON messages.attempt_log FOR EACH STATEMENT EXECUTE FUNCTION stall()"
    )
    start({"job": KEEPING})
    queue.conn.execute("SELECT pg_advisory_lock(7)")
    message = queue.publish("job", payload={})
    stalled = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    (waiting,) = eventually(lambda: queue.rows(stalled))

    queue.value("SELECT pg_terminate_backend(%s)", [waiting.pid])
    eventually(lambda: [each.pid for each in queue.rows(stalled)] not in ([], [waiting.pid]))
    queue.conn.execute("SELECT pg_advisory_unlock(7)")

    eventually(lambda: queue.archived(message))
    assert (queue.archived(message).attempts, len(logs(queue, message))) == (1, 1)


@pytest.mark.long
@pytest.mark.parametrize("handler", ["say_in_thread", "say"])
def test_of_many_attempts_at_once_each_has_its_own_lines(start: Start, queue: Queue, handler: str) -> None:
    start({"job": {"handler": f"chatty:{handler}", "log_bytes": 10_000}}, concurrency=50, threads=50)

    own = sql.SQL("jsonb_build_object('texts', ARRAY['own ' || n], 'times', 40)")
    ids = queue.publish_many(200, "job", payload=own)
    eventually(lambda: queue.ids() == [])

    for number, message in enumerate(ids, 1):
        (logged,) = logs(queue, message)
        said = [line.rpartition(": ")[2] for line in logged.lines.split("\n")]
        assert [line for line in said if line.startswith("own")] == [f"own {number}"]
        assert (sum(line.startswith("line") for line in said), logged.left_out) == (40, 0)
