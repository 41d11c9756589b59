"""Behind a pooler in transaction mode: everything works with a direct connection of the listener, and without one, but slower."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import pgrouse.client.database
from pgrouse import MessageResult, Waiter, wait_for
from pgrouse.config import config
from tests.daemon import pgbouncer
from tests.daemon.locks import LOCKS_ARE_NEVER_ENDED, is_kept
from tests.daemon.process import AT_ONCE_S, Daemon, Fleet, Journal, now
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


@pytest.fixture
def pooled(database: Database) -> Iterator[str]:
    """The connection string through the pooler."""
    if pgbouncer.PROGRAM is None:
        pytest.skip("pgbouncer is not installed: `apt-get install pgbouncer` as root brings it")
    # Not the test's own folder: other users may not enter that.
    with tempfile.TemporaryDirectory() as folder, pgbouncer.in_front_of(database.dsn, Path(folder)) as dsn:
        yield dsn


def test_a_daemon_with_a_direct_listener_connection_works_through_a_pooler(
    start: Start, pooled: str, database: Database, queue: Queue, journal: Journal
) -> None:
    queue.conn.execute("CREATE TABLE effect (message_id bigint)")
    queue.policy("hold", lock_duration="2 s")
    daemon = start(
        {"job": "work:echo", "store": "effects:store", "hold": "holding:hold"},
        dsn=pooled,
        database={"listen_dsn": database.dsn, "prepare": False},
        **LOCKS_ARE_NEVER_ENDED,
    )

    held = queue.publish("hold")
    stored = queue.publish("store")
    echoed = queue.publish_many(300, "job")
    journal.entry("start", held)

    eventually(lambda: queue.value("SELECT count(*) FROM messages.message_archive WHERE result = 'success'") == 301)
    assert queue.value("SELECT count(*) FROM effect WHERE message_id = %s", [stored]) == 1
    assert sorted(e["id"] for e in journal.entries("start") if e["id"] in set(echoed)) == echoed
    assert is_kept(queue, held, timedelta(seconds=2))
    assert daemon.events("listener.degraded") == []
    daemon.open_gate()
    assert daemon.stop() == 0


def test_a_listener_behind_the_pooler_is_detected_and_messages_are_polled(
    fleet: Fleet, pooled: str, queue: Queue, journal: Journal
) -> None:
    daemon = fleet.launch({"job": "work:echo"}, dsn=pooled, database={"prepare": False})

    event = daemon.event("listener.degraded", within_s=60)

    assert "listen_dsn" in event["fix"]
    published = queue.publish("job")
    assert eventually(lambda: journal.entries("start", published), within_s=AT_ONCE_S)
    assert queue.value("SELECT count(*) FROM messages.sleeper WHERE armed_until > clock_timestamp()") == 0
    eventually(lambda: queue.value("SELECT status ->> 'listener' FROM messages.worker") == "degraded")


def wait_by_a_waiter(dsn: str, message_id: int, timeout: timedelta) -> MessageResult:
    with Waiter(dsn) as waiter:
        return waiter.wait_for(message_id, timeout)


@pytest.mark.parametrize("wait", [wait_for, wait_by_a_waiter], ids=["wait_for", "Waiter"])
def test_a_wait_for_an_end_through_a_pooler_warns_and_polls_each_second(
    start: Start, pooled: str, database: Database, queue: Queue, wait: Callable[..., MessageResult]
) -> None:
    daemon = start({"job": "holding:hold"}, dsn=database.dsn)
    published = queue.publish("job")

    def end_once_waited_for() -> None:
        eventually(lambda: queue.rows("SELECT FROM messages.waiter"))
        daemon.open_gate()

    threading.Thread(target=end_once_waited_for).start()
    began = now()
    with pytest.warns(RuntimeWarning, match="through a pooler"):
        ending = wait(pooled, published, timedelta(seconds=60))

    assert ending.succeeded
    assert now() - began < 30


@pytest.fixture
def repeatable_read(database: Database) -> None:
    """Start the sessions of the database with another isolation level; requested before the pooler has any."""
    database.connect().execute(f"ALTER DATABASE {database.name} SET default_transaction_isolation = 'repeatable read'")


def test_a_daemon_sets_nothing_in_a_shared_session(repeatable_read: None, pooled: str) -> None:
    with pgrouse.client.database.Database(config.DatabaseSettings(dsn=pooled, prepare=False), "w").connect_blocking(
        "claim-0"
    ) as conn:
        level = conn.execute("SHOW default_transaction_isolation").fetchone()

    assert level == ("repeatable read",)
