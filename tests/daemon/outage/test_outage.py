"""Outages of the database of every kind, under load.

Nothing is lost, nothing ends twice, and work continues afterwards.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgrouse.logging import events
from tests.daemon.process import AT_ONCE_S, Daemon, Fleet, Journal, until_armed
from tests.server.deadline import eventually
from tests.server.postgres import Database, Postgres
from tests.server.servers import Missing, Servers
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


class Publisher(threading.Thread):
    """Publishes one message after the other, whatever happens to the server, and records the acknowledged ones.

    Not faster than any daemon works: the backlog must be processed in the end.
    """

    def __init__(self, dsn: str) -> None:
        super().__init__(daemon=True)
        self.dsn = dsn
        self.acknowledged: list[int] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            with suppress(psycopg.OperationalError), psycopg.connect(self.dsn, autocommit=True) as conn:
                self._publish(Queue(conn))

    def _publish(self, queue: Queue) -> None:
        while not self.stopping.wait(0.001):
            self.acknowledged.append(queue.publish("job"))


@contextmanager
def publishing(dsn: str) -> Iterator[Publisher]:
    publisher = Publisher(dsn)
    publisher.start()
    try:
        yield publisher
    finally:
        publisher.stopping.set()
        publisher.join(60)


@pytest.fixture(scope="module")
def own_server(session_servers: Servers) -> Iterator[Postgres]:
    """A server for these tests alone."""
    try:
        with session_servers.private_server() as server:
            yield server
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def durable(own_server: Postgres) -> Iterator[Database]:
    """A database whose server the test may stop, crash and kill, and where committed data survives that."""
    with own_server.new_database(template=own_server.migrated) as database:
        with own_server.admin() as admin:
            admin.execute(f"ALTER DATABASE {database.name} SET synchronous_commit = on")
        yield database
        own_server.place.start()


def everything_is_done(dsn: str, acknowledged: list[int], journal: Journal, *, once: bool) -> None:
    """Wait until the queue is empty, and check that each acknowledged message ended once, in one table."""

    def archived() -> list[int] | None:
        with suppress(psycopg.OperationalError), psycopg.connect(dsn) as conn:
            if conn.execute("SELECT count(*) FROM messages.message").fetchone() == (0,):
                return [
                    id_ for (id_,) in conn.execute("SELECT id FROM messages.message_archive WHERE result = 'success'")
                ]
        return None

    ended = eventually(archived, within_s=90)
    started = [e["id"] for e in journal.entries("start")]
    assert len(ended) == len(set(ended)), "ended twice"
    assert set(acknowledged) <= set(ended), "lost"
    assert set(started) == set(ended)
    if once:
        assert len(started) == len(set(started)), "done twice"


def terminate_backends_under_load(queue: Queue, publisher: Publisher) -> None:
    """Terminate every backend of every daemon, ten times, after each thirty published messages.

    At least one is terminated each time.
    """
    terminate = """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND starts_with(application_name, 'pgrouse')
    """
    for goal in range(30, 330, 30):
        eventually(lambda goal=goal: len(publisher.acknowledged) >= goal)  # type: ignore[misc]
        eventually(lambda: queue.conn.execute(terminate).rowcount)


@pytest.mark.long
def test_backends_that_are_terminated_repeatedly_cost_only_time(
    start: Start, queue: Queue, journal: Journal, database: Database
) -> None:
    daemon = start({"job": "work:echo"}, claim_connections=3)

    with publishing(database.dsn) as publisher:
        terminate_backends_under_load(queue, publisher)

    everything_is_done(database.dsn, publisher.acknowledged, journal, once=True)
    assert daemon.alive


@pytest.mark.long
@pytest.mark.parametrize("handler", ["effects:store", "effects:store_in_thread"])
def test_effects_in_a_transaction_happen_once_however_often_backends_are_terminated(
    start: Start, queue: Queue, database: Database, handler: str
) -> None:
    queue.conn.execute("CREATE TABLE effect (message_id bigint)")
    queue.policy("job", max_attempts=1000, backoff={"kind": "none"})
    start({"job": handler})

    with publishing(database.dsn) as publisher:
        terminate_backends_under_load(queue, publisher)

    eventually(lambda: queue.ids() == [], within_s=90)
    stored = [row.message_id for row in queue.rows("SELECT message_id FROM effect")]
    assert len(stored) == len(set(stored)), "done twice"
    assert set(publisher.acknowledged) <= set(stored), "lost"
    assert queue.value("SELECT count(*) FROM messages.message_archive WHERE result = 'success'") == len(stored)


@pytest.mark.long
def test_a_daemon_finds_the_host_that_answers_among_several(
    start: Start, queue: Queue, journal: Journal, database: Database
) -> None:
    given = conninfo_to_dict(database.dsn)
    two_hosts = make_conninfo(database.dsn, host=f"/nowhere,{given['host']}", port=f"5432,{given['port']}")

    start({"job": "work:echo"}, dsn=two_hosts)

    journal.entry("start", queue.publish("job"))


def publish_through_restarts(durable: Database, how: str) -> list[int]:
    """Publish continuously, restart the server three times, and return the acknowledged messages."""
    with publishing(durable.dsn) as publisher:
        for goal in (50, 100, 150):
            eventually(lambda goal=goal: len(publisher.acknowledged) >= goal)  # type: ignore[misc]
            getattr(durable.server.place, how)()
            durable.server.place.start()
    return publisher.acknowledged


RETRIED = {"max_attempts": 5, "backoff": {"kind": "none"}}


@pytest.mark.parametrize(
    ("how", "settings", "once"),
    [
        ("stop", {}, True),
        ("crash", {}, True),
        ("kill", {}, True),
        # A crash undoes claims that had not reached the disk, where another attempt is allowed anyway.
        ("kill", RETRIED, False),
        # But not those of a topic with a limit, which would be exceeded.
        ("kill", {**RETRIED, "max_concurrency": 100}, True),
    ],
)
@pytest.mark.slow
def test_a_server_restart_under_load_costs_only_time(
    fleet: Fleet, durable: Database, journal: Journal, how: str, settings: dict[str, Any], once: bool
) -> None:
    if settings:
        Queue(durable.connect()).policy("job", **settings)
    daemon = fleet.start(durable.connect(), {"job": "work:echo"}, dsn=durable.dsn)

    published = publish_through_restarts(durable, how)

    everything_is_done(durable.dsn, published, journal, once=once)
    assert daemon.alive
    with psycopg.connect(durable.dsn, autocommit=True) as conn:
        until_armed(conn, daemon)
        again = Queue(conn).publish("job")
        assert eventually(lambda: journal.entries("start", again), AT_ONCE_S)


def test_a_handler_that_ends_during_an_outage_is_settled_afterwards(
    fleet: Fleet, durable: Database, journal: Journal
) -> None:
    daemon = fleet.start(durable.connect(), {"job": "holding:hold"}, dsn=durable.dsn)
    published = Queue(durable.connect()).publish("job")
    journal.entry("start", published)

    durable.server.place.stop()
    daemon.open_gate()
    journal.entry("end", published)
    daemon.event("loop.failed", loop="claim-0")
    durable.server.place.start()

    everything_is_done(durable.dsn, [published], journal, once=True)


def test_an_outage_is_one_line_for_each_loop_at_its_start_and_one_at_its_end(
    fleet: Fleet, durable: Database, journal: Journal
) -> None:
    daemon = fleet.start(durable.connect(), {"job": "effects:insert_when_open"}, dsn=durable.dsn)
    for each in Queue(durable.connect()).publish_many(3, "job"):
        journal.entry("start", each)

    durable.server.place.stop()
    daemon.open_gate()
    daemon.event("loop.failed", loop="handler pool")
    daemon.event("loop.failed", loop="claim-0")
    daemon.event("heartbeat.failed")
    durable.server.place.start()
    daemon.event("heartbeat.restored")
    eventually(lambda: loops(daemon, "loop.recovered") == loops(daemon, "loop.failed"))
    with psycopg.connect(durable.dsn, autocommit=True) as conn:
        eventually(lambda: not Queue(conn).ids())

    assert daemon.stop() == 0
    assert set(loops(daemon, "loop.failed").values()) == {1}
    assert len(daemon.events("heartbeat.failed")) == 1
    assert {"failures", "lasted_s"} <= daemon.events("loop.recovered", loop="handler pool")[0].keys()
    assert {each["event"] for each in daemon.logged()} <= EVENTS, "a text in place of a name"
    assert " at 0x" not in daemon.log.read_text()


def loops(daemon: Daemon, event: str) -> Counter[str]:
    return Counter(each["loop"] for each in daemon.events(event))


EVENTS = {value for value in vars(events).values() if isinstance(value, str)}


def test_a_daemon_started_while_the_database_is_down_waits_and_then_works(
    fleet: Fleet, durable: Database, journal: Journal
) -> None:
    durable.disconnect()
    durable.server.place.stop()
    daemon = fleet.launch({"job": "work:echo"}, dsn=durable.dsn)
    assert "reason" in daemon.event("loop.failed", loop="start")

    durable.server.place.start()

    with psycopg.connect(durable.dsn, autocommit=True) as conn:
        until_armed(conn, daemon)
        journal.entry("start", Queue(conn).publish("job"))


def test_a_daemon_that_waits_for_its_database_logs_no_password(fleet: Fleet, database: Database) -> None:
    secret = "correct-horse-battery"
    daemon = fleet.launch(
        {"job": "work:echo"}, dsn=f"postgresql://user:{secret}@127.0.0.1:1/{database.name}?connect_timeout=2"
    )

    event: dict[str, Any] = daemon.event("loop.failed", loop="start")

    assert "127.0.0.1" in event["reason"]
    assert secret not in daemon.log.read_text()
