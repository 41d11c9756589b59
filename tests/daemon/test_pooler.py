"""Behind a pooler in transaction mode: everything works while the listener has a way of its own, and without one too, but slower."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import pgrouse.client.database
from pgrouse import wait_for
from pgrouse.config import config
from tests.daemon import pgbouncer
from tests.daemon.locks import NOBODY_ENDS_LOCKS, is_kept
from tests.daemon.process import AT_ONCE_S, Daemon, Fleet, Journal, now
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


@pytest.fixture
def pooled(database: Database) -> Iterator[str]:
    """The connection string of the way through the pooler."""
    if pgbouncer.PROGRAM is None:
        pytest.skip("pgbouncer is not installed: `apt-get install pgbouncer` as root brings it")
    # Not the test's own folder: others may not enter that.
    with tempfile.TemporaryDirectory() as folder, pgbouncer.in_front_of(database.dsn, Path(folder)) as dsn:
        yield dsn


def test_with_a_direct_way_for_the_listener_everything_works(
    start: Start, pooled: str, database: Database, queue: Queue, journal: Journal
) -> None:
    queue.conn.execute("CREATE TABLE effect (message_id bigint)")
    queue.policy("hold", lock_duration="2 s")
    daemon = start(
        {"job": "work:echo", "store": "effects:store", "hold": "holding:hold"},
        dsn=pooled,
        database={"listen_dsn": database.dsn, "prepare": False},
        **NOBODY_ENDS_LOCKS,
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


def test_a_listener_behind_the_pooler_is_found_out_and_messages_are_found_by_polling(
    fleet: Fleet, pooled: str, queue: Queue, journal: Journal
) -> None:
    daemon = fleet.launch({"job": "work:echo"}, dsn=pooled, database={"prepare": False})

    said = daemon.event("listener.degraded", within_s=60)

    assert "listen_dsn" in said["fix"]
    published = queue.publish("job")
    assert eventually(lambda: journal.entries("start", published), within_s=AT_ONCE_S)
    assert queue.value("SELECT count(*) FROM messages.sleeper WHERE armed_until > clock_timestamp()") == 0
    eventually(lambda: queue.value("SELECT status ->> 'listener' FROM messages.worker") == "degraded")


def test_whoever_waits_for_an_end_through_it_is_warned_and_looks_each_second(
    start: Start, pooled: str, database: Database, queue: Queue
) -> None:
    daemon = start({"job": "holding:hold"}, dsn=database.dsn)
    published = queue.publish("job")

    def end_once_waited_for() -> None:
        eventually(lambda: queue.rows("SELECT FROM messages.waiter"))
        daemon.open_gate()

    threading.Thread(target=end_once_waited_for).start()
    began = now()
    with pytest.warns(RuntimeWarning, match="through a pooler"):
        ending = wait_for(pooled, published, timedelta(seconds=60))

    assert ending.succeeded
    assert now() - began < 30


@pytest.fixture
def repeatable_read(database: Database) -> None:
    """Let the sessions of the database begin with another isolation level; to be asked for before the pooler has any."""
    database.connect().execute(f"ALTER DATABASE {database.name} SET default_transaction_isolation = 'repeatable read'")


def test_nothing_is_set_in_a_session_that_belongs_to_others_too(repeatable_read: None, pooled: str) -> None:
    with pgrouse.client.database.Database(config.DatabaseSettings(dsn=pooled, prepare=False), "w").connect_blocking(
        "claim-0"
    ) as conn:
        level = conn.execute("SHOW default_transaction_isolation").fetchone()

    assert level == ("repeatable read",)
