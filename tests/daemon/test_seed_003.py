"""The guarantees of a queue of NOTIFY and pg_cron, end to end: real daemons, pg_cron, the server's real log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from pgrouse.install import pg_cron as cron
from pgrouse.install import schema
from tests.daemon.process import Daemon, Fleet, Journal
from tests.server.deadline import eventually
from tests.server.postgres import Database, Postgres
from tests.server.servers import Missing, Servers
from tests.sql.queue import Listener, Queue

Start = Callable[..., Daemon]
SECRET = "s3cret"


@pytest.fixture(scope="module")
def own_server(session_servers: Servers) -> Iterator[Postgres]:
    """A server whose log has only the messages of these tests."""
    try:
        with session_servers.private_server() as server:
            yield server
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def database(own_server: Postgres) -> Iterator[Database]:
    """The queue of all tests here, in the database of pg_cron, so that its users can schedule jobs directly."""
    if own_server.pg_cron is None:
        pytest.skip("this server has no pg_cron: install PostgreSQL with it from your distribution's packages")
    database = Database(own_server, own_server.cron_database)
    with own_server.admin(database.name) as conn:
        schema.migrate(conn)
        eventually(
            lambda: conn.execute("SELECT FROM pg_stat_activity WHERE backend_type = 'pg_cron launcher'").rowcount
        )
    yield database
    database.disconnect()


@pytest.fixture
def queue(database: Database) -> Queue:
    return Queue(database.connect())


def ended(queue: Queue, published: int) -> Any:
    """Wait for the end of a message and return its row of the archive."""
    return eventually(lambda: queue.archived(published))


# Every result of a message


@pytest.mark.long
def test_a_published_message_is_processed_and_archived_as_success(start: Start, queue: Queue, journal: Journal) -> None:
    start({"orders": "work:echo"})

    published = queue.row(
        "INSERT INTO messages.message (topic, payload) VALUES ('orders', '{\"id\": 7}') RETURNING id"
    ).id

    archived = ended(queue, published)
    assert (archived.result, archived.payload, archived.output) == ("success", {"id": 7}, {"id": 7})
    assert queue.message(published) is None
    assert len(journal.entries("start", published)) == 1


@pytest.mark.parametrize(
    ("do", "result", "error"),
    [("reject", "rejected", "not a word of it is true"), ("raise", "failed", "ZeroDivisionError: division by zero")],
)
def test_a_message_that_cannot_be_processed_is_archived_at_the_first_attempt(
    start: Start, queue: Queue, do: str, result: str, error: str
) -> None:
    start({"orders": "work:act"})

    published = queue.publish("orders", payload={"do": do})

    archived = ended(queue, published)
    assert (archived.result, archived.attempts) == (result, 1)
    assert error in archived.error


def test_a_worker_that_exceeds_its_timeout_archives_its_message_as_lock_expired(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.policy("slow", timeout="300 ms", lock_duration="1 hour")
    daemon = start({"slow": "holding:hold"}, name="slowcoach")

    published = queue.publish("slow")

    archived = ended(queue, published)
    assert (archived.result, archived.attempts) == ("lock_expired", 1)
    assert f"slowcoach:{daemon.pid}" in archived.handled_by
    journal.entry("cancelled", published)


# Numbers of workers


def test_a_message_waits_without_a_worker_and_the_next_worker_takes_it(
    start: Start, queue: Queue, journal: Journal
) -> None:
    published = queue.publish("patient")
    queue.rows("SELECT * FROM messages.tick()")
    waiting = queue.row("SELECT state FROM messages.state WHERE id = %s", [published]).state

    start({"patient": "work:echo"})

    assert waiting == "ready"
    assert ended(queue, published).result == "success"


def test_several_workers_share_the_messages_and_none_is_processed_twice(
    start: Start, queue: Queue, journal: Journal
) -> None:
    daemons = [start({"shared": "holding:hold"}, concurrency=5) for _ in range(3)]

    # As many as all of them together can hold: none has to be fast to get some.
    published = queue.publish_many(15, "shared", payload=Jsonb(1))
    eventually(lambda: len(journal.entries("start")) == 15)
    for daemon in daemons:
        daemon.open_gate()
    published += [each for _ in range(8) for each in queue.publish_many(9, "shared", payload=Jsonb(1))]

    eventually(lambda: queue.value("SELECT count(*) FROM messages.message WHERE topic = 'shared'") == 0, within_s=60)
    started = journal.entries("start")
    assert sorted(entry["id"] for entry in started) == published
    assert len({entry["pid"] for entry in started}) == 3
    assert {queue.archived(each).result for each in published} == {"success"}


# Dead messages


def test_an_ad_hoc_worker_is_notified_of_dead_messages_and_redrives_them(
    start: Start, queue: Queue, database: Database
) -> None:
    """It is no daemon: it listens to dead_message, reads messages.dead, fixes, and redrives."""
    listener = Listener(database.connect(), "dead_message")
    start({"bills": "work:act"})

    published = queue.publish("bills", payload={"do": "fail"})
    (received,) = eventually(listener.received)
    dead = queue.row("SELECT topic, payload, result, error FROM messages.dead WHERE id = %s", [int(received)])
    back = queue.row("SELECT * FROM messages.redrive(%s)", [[int(received)]])

    assert int(received) == published
    assert tuple(dead) == ("bills", {"do": "fail"}, "failed", "the account is closed")
    assert ended(queue, back.message_id).redriven_from == published
    assert queue.archived(published).result == "failed"


def test_the_server_log_warns_of_a_dead_message_without_its_payload(
    start: Start, queue: Queue, own_server: Postgres
) -> None:
    start({"letters": "work:act"})

    published = queue.publish("letters", payload={"do": "reject", "to": SECRET})
    ended(queue, published)

    log = own_server.place.log.read_text()
    assert f"WARNING:  dead message {published} of topic letters: rejected" in log
    assert SECRET not in log


# What pg_cron does without a living worker


@dataclass
class Minute:
    """The state before, and the notifications received while pg_cron ran."""

    killed: int
    waiting: int
    received: list[str]


@pytest.fixture(scope="module")
def minute(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minute]:
    """A worker dies during its work, a message waits without a worker, a job publishes.

    Then pg_cron runs, within a minute.
    """
    queue, fleet = Queue(database.connect()), Fleet(tmp_path_factory.mktemp("minute"))
    queue.policy("fragile", lock_duration="1 s")
    # It ends no lock itself, not even one that it was late to extend.
    daemon = fleet.start(queue.conn, {"fragile": "holding:hold"}, dsn=database.dsn, maintenance_interval="1h")
    killed = queue.publish("fragile")
    fleet.journal.entry("start", killed)
    daemon.kill()
    waiting = queue.publish("stranded", wait="-1 hour")
    listener = Listener(database.connect(), "new_message", "dead_message")
    cron.install(queue.conn)
    queue.conn.execute(
        """
        SELECT cron.schedule('nightly-report', '* * * * *',
          $$INSERT INTO messages.message (topic, payload) VALUES ('report', '{"of": "today"}')$$)
        """
    )
    ticked = "SELECT FROM messages.tick_mark WHERE caller = 'cron' AND task = 'prune'"
    eventually(lambda: queue.rows(ticked) and queue.archived(killed), within_s=130, every_s=0.2)
    eventually(lambda: queue.rows("SELECT FROM messages.message WHERE topic = 'report'"), within_s=70)
    received = listener.received()
    yield Minute(killed, waiting, received)
    queue.conn.execute("SELECT cron.unschedule('nightly-report')")
    cron.remove(queue.conn)


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("minute")
@pytest.mark.slow
def test_a_message_published_by_plain_pg_cron_is_a_normal_message(start: Start, queue: Queue) -> None:
    start({"report": "work:echo"})

    archived = eventually(lambda: queue.rows("SELECT * FROM messages.message_archive WHERE topic = 'report'"))[0]

    assert (archived.result, archived.output) == ("success", {"of": "today"})


@pytest.mark.long
@pytest.mark.timeout(240)
def test_the_message_of_a_dead_worker_is_archived_as_lock_expired(queue: Queue, minute: Minute) -> None:
    archived = queue.archived(minute.killed)

    assert (archived.result, archived.attempts) == ("lock_expired", 1)
    assert str(minute.killed) in minute.received


@pytest.mark.timeout(240)
def test_an_unclaimed_message_is_notified_again_and_remains(queue: Queue, minute: Minute) -> None:
    assert "stranded" in minute.received
    assert queue.message(minute.waiting).attempts == 0
