"""Behind a pooler everything works with the defaults, if the listener has a direct connection.

Without one it works too, but slower.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

import pgrouse.client.connection.database
from pgrouse import Client, MessageResult, Waiter, publish, wait_for
from pgrouse.config import config
from pgrouse.database import search_path
from pgrouse.web.access.database_pool import DatabasePool
from tests.api.site import Site
from tests.daemon import naming_pooler, pgbouncer
from tests.daemon.locks import LOCKS_ARE_NEVER_ENDED, is_kept
from tests.daemon.process import AT_ONCE_S, PGROUSE, Daemon, Fleet, Journal, now
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


@pytest.fixture
def pooled(database: Database) -> Iterator[str]:
    """The connection string through the pooler."""
    with pgbouncer.in_front_of(database.dsn) as dsn:
        yield dsn


@pytest.fixture
def pooler(database: Database) -> Iterator[pgbouncer.Pgbouncer]:
    """A pooler in transaction mode."""
    with pgbouncer.running(database.dsn) as pooler:
        yield pooler


@pytest.mark.long
def test_a_daemon_with_a_direct_listener_connection_works_through_a_pooler(
    start: Start, pooled: str, database: Database, queue: Queue, journal: Journal
) -> None:
    queue.conn.execute("CREATE TABLE effect (message_id bigint)")
    queue.policy("hold", lock_duration="2 s")
    daemon = start(
        {"job": "work:echo", "store": "effects:store", "hold": "holding:hold"},
        dsn=pooled,
        database={"listen_dsn": database.dsn},
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


@pytest.mark.long
def test_a_listener_behind_the_pooler_is_detected_and_messages_are_polled(
    fleet: Fleet, pooled: str, queue: Queue, journal: Journal
) -> None:
    daemon = fleet.launch({"job": "work:echo"}, dsn=pooled)

    event = daemon.event("listener.degraded", within_s=60)

    assert "listen_dsn" in event["fix"]
    published = queue.publish("job")
    assert eventually(lambda: journal.entries("start", published), within_s=AT_ONCE_S)
    assert queue.value("SELECT count(*) FROM messages.sleeper WHERE armed_until > clock_timestamp()") == 0
    eventually(lambda: queue.value("SELECT status ->> 'listener' FROM messages.worker") == "degraded")


def wait_by_a_waiter(dsn: str, message_id: int, timeout: timedelta) -> MessageResult:
    with Waiter(dsn) as waiter:
        return waiter.wait_for(message_id, timeout)


@pytest.mark.parametrize(
    "wait", [wait_for, pytest.param(wait_by_a_waiter, marks=pytest.mark.long)], ids=["wait_for", "Waiter"]
)
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


ENDS_PER_TOPIC = (
    "SELECT topic, result, count(*), max(attempts) FROM messages.message_archive GROUP BY topic, result ORDER BY topic"
)
STORES = {"job": "work:echo", "store": "effects:store", "store.thread": "effects:store_in_thread"}


def test_two_daemons_with_the_defaults_work_each_message_once_through_a_pooler(
    fleet: Fleet, pooled: str, database: Database, queue: Queue
) -> None:
    queue.conn.execute("CREATE TABLE effect (message_id bigint)")
    daemons = [fleet.launch(STORES, dsn=pooled, database={"listen_dsn": database.dsn}) for _ in range(2)]
    for each in daemons:
        each.event("daemon.started")

    for _ in range(10):
        for topic in STORES:
            queue.publish_many(10, topic)

    eventually(lambda: not queue.rows("SELECT FROM messages.message"))
    assert queue.rows(ENDS_PER_TOPIC) == [(topic, "success", 100, 1) for topic in sorted(STORES)]
    assert queue.value("SELECT count(DISTINCT message_id) FROM effect") == 200
    assert [each.events("loop.failed") for each in daemons] == [[], []]
    assert [each.stop() for each in daemons] == [0, 0]


WAITING = """
    SELECT count(*) FROM messages.message
    WHERE topic <> 'never' AND claim_id IS NULL AND history -> -1 ->> 'outcome' = 'waiting'
"""


def test_handlers_wait_for_events_that_come_through_a_pooler_and_for_one_that_does_not(
    start: Start, pooled: str, database: Database, queue: Queue
) -> None:
    thread, process = "events:approve_in_thread", {"handler": "events:approve_in_process", "isolation": "process"}
    handlers = {"sql": "events:approve", "client": thread, "http": process, "never": "events:approve"}
    start(handlers, dsn=pooled, database={"listen_dsn": database.dsn})
    with psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as conn:
        ids = {topic: publish(conn, topic, {"timeout": "1s"} if topic == "never" else {}) for topic in handlers}
        eventually(lambda: queue.value(WAITING) == 3, within_s=90)

        conn.execute("SELECT messages.signal(%s, 'approved', %s)", [ids["sql"], Jsonb({"by": "sql"})])
        with Client(pooled) as client:
            client.signal(ids["client"], "approved", {"by": "client"})
        site = Site(database, dsn=pooled)
        try:
            with site.client(site.token("publisher")) as http:
                signalled = {"name": "approved", "payload": {"by": "http"}}
                assert http.post(f"/v1/messages/{ids['http']}/signal", json=signalled).status_code == 200
        finally:
            site.stop()

    eventually(lambda: not queue.rows("SELECT FROM messages.message"), within_s=90)
    ended = {topic: queue.archived(published) for topic, published in ids.items()}
    assert {topic: row.result for topic, row in ended.items()} == dict.fromkeys(ids, "success") | {"never": "failed"}
    assert {topic: ended[topic].output["by"] for topic in ("sql", "client", "http")} == {
        "sql": "sql", "client": "client", "http": "http",
    }  # fmt: skip
    assert "EventTimeout: event 'approved' did not come in time" in ended["never"].error


def test_a_daemon_says_once_at_start_what_a_pooler_means(fleet: Fleet, pooled: str) -> None:
    daemon = fleet.launch({"job": "work:echo"}, dsn=pooled)

    daemon.event("daemon.started")

    (event,) = daemon.events("pooler.found")
    assert (event["prepared_statements"], event["listen_dsn"]) == ("not used", "not set")
    assert "a direct database.listen_dsn" in event["meaning"]


def test_a_pooler_that_is_restarted_and_reloaded_costs_no_message(
    fleet: Fleet, pooler: pgbouncer.Pgbouncer, database: Database, queue: Queue
) -> None:
    pooler.reload("session")
    daemon = fleet.launch({"job": "work:echo"}, dsn=pooler.dsn, database={"listen_dsn": database.dsn})
    daemon.event("daemon.started")

    queue.publish_many(100, "job")
    pooler.reload("transaction")
    queue.publish_many(100, "job")
    pooler.kill()
    queue.publish_many(100, "job")
    pooler.start("session")
    queue.publish_many(100, "job")

    eventually(lambda: not queue.rows("SELECT FROM messages.message"))
    assert queue.rows(ENDS_PER_TOPIC) == [("job", "success", 400, 1)]


@pytest.mark.long
def test_a_daemon_receives_notifications_through_a_pooler_in_session_mode(
    fleet: Fleet, pooler: pgbouncer.Pgbouncer, queue: Queue
) -> None:
    pooler.kill()
    pooler.start("session")
    daemon = fleet.launch({"job": "work:echo"}, dsn=pooler.dsn)

    eventually(lambda: queue.rows("SELECT FROM messages.worker WHERE status ->> 'listener' = 'listening'"))
    assert daemon.events("listener.degraded") == []


@pytest.mark.long
@pytest.mark.parametrize("command", ["run", "schedule list"])
def test_a_pooler_in_statement_mode_is_refused_with_the_fix(
    tmp_path: Path, pooler: pgbouncer.Pgbouncer, command: str
) -> None:
    pooler.kill()
    pooler.start("statement")
    (tmp_path / "work.py").write_text("def work(): ...")
    (tmp_path / "pgrouse.toml").write_text('[topics.job]\nhandler = "work:work"\n')

    ended = subprocess.run(  # noqa: PLW1510 - it fails
        [PGROUSE, *command.split()],
        cwd=tmp_path,
        env={**os.environ, "PGROUSE_DSN": pooler.dsn},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert ended.returncode == 78
    assert "set pool_mode = transaction" in ended.stderr


def prepared(conn: psycopg.Connection[Any]) -> list[str]:
    """Return the names of what is prepared in a session, after a statement was executed often enough."""
    for _ in range(5):
        conn.execute("SELECT 1 AS often")
    return [name for (name,) in conn.execute("SELECT name FROM pg_prepared_statements", prepare=False)]


def opened(dsn: str, by: str) -> psycopg.Connection[Any]:
    """Open a connection as a part does."""
    if by == "Client":
        return Client(dsn).conn
    return connector(dsn).connect_blocking("claim-0")


def connector(dsn: str) -> pgrouse.client.connection.database.Database:
    """Return the connections of a daemon with the default settings."""
    return pgrouse.client.connection.database.Database(config.DatabaseSettings(dsn=dsn), "w")


@pytest.mark.parametrize("by", ["Client", "daemon"])
def test_nothing_is_prepared_or_set_through_a_pooler_that_would_lose_it(pooled: str, by: str) -> None:
    with psycopg.connect(pooled, prepare_threshold=None) as other:
        usual = other.execute("SELECT name, setting FROM pg_settings WHERE name <> 'application_name'").fetchall()

    with opened(pooled, by) as conn:
        assert prepared(conn) == []

    with psycopg.connect(pooled, prepare_threshold=None) as other:
        assert (
            other.execute("SELECT name, setting FROM pg_settings WHERE name <> 'application_name'").fetchall() == usual
        )


def test_a_handler_prepares_nothing_through_a_pooler_that_would_lose_it(pooled: str) -> None:
    with connector(pooled).blocking_pool() as pool, pool.connection() as conn:
        assert prepared(conn) == []


def test_an_async_handler_prepares_nothing_through_a_pooler_that_would_lose_it(pooled: str) -> None:
    async def threshold() -> int | None:
        async with connector(pooled).pool() as pool, pool.connection() as conn:
            return conn.prepare_threshold

    assert asyncio.run(threshold()) is None


def test_statements_are_prepared_through_a_pooler_that_keeps_them(database: Database) -> None:
    with naming_pooler.in_front_of(database.dsn) as dsn, connector(dsn).connect_blocking("claim-0") as conn:
        (name,) = prepared(conn)

    assert name.startswith(naming_pooler.PREFIX.decode())


def test_statements_are_prepared_on_a_direct_connection(database: Database) -> None:
    with connector(database.dsn).connect_blocking("claim-0") as conn:
        (name,) = prepared(conn)

    assert name.startswith("_pg3_")  # else pgrouse.client.connection.pooler looks for another name than psycopg gives


def test_a_web_server_leaves_the_sessions_of_a_pooler_as_they_are(pooled: str) -> None:
    async def limit_after_a_request() -> tuple[Any, ...] | None:
        pool = DatabasePool(config.Config(database=config.DatabaseSettings(dsn=pooled)))
        await pool.open()
        async with pool.connection() as conn:
            await conn.execute("SELECT 1")
        await pool.close()
        with psycopg.connect(pooled, prepare_threshold=None) as other:
            return other.execute("SHOW statement_timeout").fetchone()

    assert asyncio.run(limit_after_a_request()) == ("0",)


def test_a_check_of_pg_cron_leaves_the_search_path_of_a_pooler_as_it_is(pooled: str) -> None:
    with psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as conn:
        usual = conn.execute("SHOW search_path").fetchone()

        with search_path.fixed_session(conn):
            during = conn.execute("SHOW search_path").fetchone()

    assert during == usual


@pytest.fixture
def repeatable_read(database: Database) -> None:
    """Start the sessions of the database with another isolation level; requested before the pooler has any."""
    database.connect().execute(f"ALTER DATABASE {database.name} SET default_transaction_isolation = 'repeatable read'")


def test_a_daemon_sets_nothing_in_a_shared_session(repeatable_read: None, pooled: str) -> None:
    with pgrouse.client.connection.database.Database(config.DatabaseSettings(dsn=pooled), "w").connect_blocking(
        "claim-0"
    ) as conn:
        level = conn.execute("SHOW default_transaction_isolation").fetchone()

    assert level == ("repeatable read",)
