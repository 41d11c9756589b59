"""A role that may create objects in a schema of the search_path gets nothing called.

Neither migrate nor any connection of pgrouse calls it.

In the database of these tests a schema of traps comes first in the search_path, before PostgreSQL's own: see traps.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg import sql

from pgrouse import AsyncClient, Client, NewMessage, Waiter, publish, publish_many, testing, wait_for
from pgrouse.database.install import pg_cron as cron
from pgrouse.database.install import schema
from pgrouse.publishing.copy_rows import READ_START, CopyRows
from pyspark_pgrouse.connection import connection
from tests.api.site import Site
from tests.cli.shell import Shell
from tests.daemon import pgbouncer
from tests.daemon.process import Fleet
from tests.drivers.callers import for_asyncpg
from tests.security import traps
from tests.server.deadline import eventually
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue

NewTrapped = Callable[..., AbstractContextManager[Database]]


@pytest.fixture
def trapped(server: Postgres, new_trapped: NewTrapped) -> Iterator[Database]:
    """A queue whose database is full of traps."""
    with new_trapped(server.migrated) as database:
        yield database


@pytest.fixture
def queue(trapped: Database) -> Queue:
    """The queue through the one connection that looks up PostgreSQL's own objects first."""
    return Queue(trapped.connect(options="-c search_path=public"))


@pytest.fixture
def fleet(trapped: Database, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.kill()


@pytest.fixture
def pgrouse(
    trapped: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith(("PG", "DATABASE_URL")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PGROUSE_DSN", trapped.dsn)
    return Shell(monkeypatch, capsys)


CALLS = [
    "SELECT 1 = 1", "SELECT now()", "SELECT 'a'::text", "SELECT 'a' || current_database()",
    "SELECT format('%s', current_database())", "SELECT count(1)", "SELECT jsonb_build_object('a', 1)",
    "SELECT unnest(ARRAY[1])", "SELECT 1 WHERE 1 IN (1, 2)", "SELECT ARRAY['a'] = ARRAY['a']", "SELECT * FROM pg_roles",
]  # fmt: skip


def test_the_traps_catch_a_call(trapped: Database) -> None:
    conn = trapped.connect()
    for statement in CALLS:
        with pytest.raises(psycopg.Error) as error:
            conn.execute(statement.encode())

        assert traps.caught(error.value), statement


# Installing


@contextmanager
def attacker(admin: psycopg.Connection[Any], trap: str) -> Iterator[str]:
    """A role with no right except to create in a schema of everyone's path, and its objects. Yields its name."""
    name = f"mallory_{os.getpid()}"
    role = sql.Identifier(name)
    admin.execute(sql.SQL("CREATE ROLE {}").format(role))
    try:
        admin.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
        admin.execute(sql.SQL("SET ROLE {}").format(role))
        admin.execute(trap.format(name).encode())
        admin.execute("RESET ROLE")
        yield name
    finally:
        admin.execute("RESET ROLE")
        admin.execute(sql.SQL("DROP OWNED BY {} CASCADE; DROP ROLE {}").format(role, role))


# `format('…', current_database())` is format(unknown, name), which no function of PostgreSQL's own matches better.
FORMAT = """
    CREATE FUNCTION public.format(text, name) RETURNS text LANGUAGE plpgsql AS
    $$ BEGIN EXECUTE 'ALTER ROLE {} SUPERUSER'; RETURN 'SELECT 1'; END $$
"""


def is_superuser(conn: psycopg.Connection[Any], name: str) -> bool:
    return conn.execute("SELECT FROM pg_roles AS r WHERE r.rolname = %s AND r.rolsuper", [name]).rowcount > 0


def outsiders(conn: psycopg.Connection[Any]) -> list[Any]:
    """Return dependencies of the schema's objects on objects that are neither in it nor PostgreSQL's own."""
    query = """
        SELECT pg_describe_object(d.classid, d.objid, d.objsubid),
               pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid)
        FROM pg_depend AS d, pg_identify_object(d.classid, d.objid, d.objsubid) AS its,
             pg_identify_object(d.refclassid, d.refobjid, d.refobjsubid) AS ref
        WHERE its.schema = 'messages' AND ref.schema NOT IN ('messages', 'pg_catalog', 'pg_toast')
        """
    return conn.execute(query).fetchall()


@pytest.mark.every_server
def test_a_function_that_matches_better_makes_no_role_superuser_by_migrate(empty_database: Database) -> None:
    admin = empty_database.connect()

    with attacker(admin, FORMAT) as mallory:
        schema.migrate(admin)
        schema.migrate(admin)

        assert not is_superuser(admin, mallory)
        assert admin.execute("SHOW search_path").fetchone() == ('"$user", public',)


@pytest.mark.pg_cron
def test_a_function_that_matches_better_makes_no_role_superuser_by_cron_install(
    database: Database, db: psycopg.Connection[Any]
) -> None:
    with attacker(db, FORMAT) as mallory:
        cron.install(db)
        cron.check(db)
        cron.remove(db)

        assert not is_superuser(db, mallory)
        assert db.execute("SHOW search_path").fetchone() == ('"$user", public',)


@pytest.mark.every_server
def test_migrate_calls_no_trap_and_none_of_its_objects_refers_to_one(new_trapped: NewTrapped) -> None:
    with new_trapped() as database:
        with database.connect() as conn:
            made = schema.migrate(conn)
            again = schema.migrate(conn)
            schema.check(conn)

            assert conn.execute("SHOW search_path").fetchone() == (traps.PATH,)

        assert len(made) > 300
        assert again == []
        assert outsiders(database.connect(options="-c search_path=public")) == []


def test_migrate_in_a_transaction_of_the_caller_restores_the_path(empty_database: Database) -> None:
    with empty_database.connect(autocommit=False) as conn:
        schema.migrate(conn)

        assert conn.execute("SHOW search_path").fetchone() == ('"$user", public',)


@pytest.mark.pg_cron
def test_the_jobs_of_pg_cron_are_installed_checked_and_removed_without_a_trap(trapped: Database) -> None:
    with trapped.connect() as conn:
        assert cron.install(conn) != []
        cron.check(conn)
        assert cron.remove(conn) != []


# The command line

COMMANDS = [
    "migrate", "publish t 1 --key a --ttl 1d", "publish t 1 --key a --on-conflict replace", "stats", "message list",
    "message show 1", "explain 1",
    "topic list", "topic show t", "topic set t max_attempts=3", "topic pause t", "topic resume t", "subscription list",
    "worker list", "audit", "health",
    "dead list", "dead group", "schedule add s * t", "schedule show s", "schedule run-now s", "worker list",
    "redrive --topic t --dry-run", "schedule list", "alert list", "alert conditions", "alert sinks", "alert thresholds",
    "alert silence list", "token list", "token add x --role viewer", "maintenance run", "doctor", "config check",
    "message cancel 1", "archive purge --older-than 3650d",
]  # fmt: skip


def test_no_command_calls_a_trap(pgrouse: Shell, queue: Queue) -> None:
    bad: dict[str, Any] = {}
    for command in COMMANDS:
        ended = pgrouse(*[w if w != "*" else "* * * * *" for w in command.split()])
        assert not traps.caught(ended.out + ended.err), command
        bad |= {command: ended} if ended.code else {}

    # There is no worker, and the machine of the tests is not one that a doctor would approve.
    assert bad.keys() <= {"health", "doctor"}, bad


# The daemon

TOPICS = {"own": "own_path:own", "thread": "own_path:in_thread", "fails": "own_path:fails", "after": "own_path:after"}


def worked(fleet: Fleet, queue: Queue, **settings: Any) -> list[dict[str, Any]]:
    """Let a daemon run a message of each kind; return its log."""
    queue.policy("fails", max_attempts=2, backoff='{"kind": "none"}')
    daemon = fleet.launch(TOPICS, **settings)
    for topic in ("own", "thread", "fails"):
        queue.publish(topic)
    eventually(lambda: queue.value("SELECT count(*) FROM messages.message_archive") == 4, within_s=120)
    assert daemon.stop() == 0
    return daemon.logged()


def test_a_daemon_calls_no_trap_and_its_handlers_have_the_path_of_their_role(
    fleet: Fleet, trapped: Database, queue: Queue
) -> None:
    logged = worked(fleet, queue, dsn=trapped.dsn)

    assert [e for e in logged if traps.caught(str(e))] == []
    ended = dict(queue.conn.execute("SELECT topic, output #>> '{}' FROM messages.message_archive").fetchall())
    assert ended["own"] == ended["thread"] == traps.PATH
    assert queue.value("SELECT count(*) FROM messages.message_archive WHERE result = 'failed' AND topic = 'fails'") == 1


def test_behind_a_pooler_a_daemon_calls_no_trap_and_leaves_the_path_to_others(
    fleet: Fleet, trapped: Database, queue: Queue
) -> None:
    with pgbouncer.in_front_of(trapped.dsn) as pooled:
        logged = worked(fleet, queue, dsn=pooled, database={"listen_dsn": trapped.dsn, "prepare": False})
        with psycopg.connect(pooled) as another:
            path = another.execute("SHOW search_path").fetchone()

    assert [e for e in logged if traps.caught(str(e))] == []
    assert path == (traps.PATH,)


# The web server

PAGES = [
    "/", "/search?q=1", "/messages", "/messages?topic=t", "/messages/{id}", "/messages/{dead}", "/topics", "/topics/t",
    "/workers", "/schedules",
    "/schedules/next?cron=*+*+*+*+*&time_zone=UTC", "/schedules/s", "/dead", "/audit", "/doctor", "/doctor/findings",
    "/metrics", "/v1/messages",
    "/v1/messages/{id}", "/v1/messages/{id}/explain", "/v1/topics", "/v1/topics/t", "/v1/dead", "/v1/dead/groups",
    "/v1/stats", "/v1/workers",
    "/v1/schedules", "/v1/audit",
]  # fmt: skip


def test_no_request_calls_a_trap(trapped: Database, queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.schedule (name, cron, topic, payload) VALUES ('s', '* * * * *', 't', '1')")
    dead, waits = queue.publish("t"), queue.publish("u")
    (claimed,) = queue.conn.execute("SELECT id, claim_id FROM messages.claim('w', ARRAY['t'], 1)").fetchall()
    queue.conn.execute("SELECT messages.fail(%s, %s, %s)", [[claimed[0]], [claimed[1]], ["no"]])
    site = Site(trapped)
    try:
        with site.client() as http:
            answers = [http.get(page.format(id=waits, dead=dead)) for page in PAGES]
            answers += [
                http.post("/v1/messages", json={"topic": "w", "payload": 1, "key": "k", "delay": "1s"}),
                http.post("/v1/messages", json={"topic": "w", "payload": 1, "key": "k", "on_conflict": "replace"}),
                http.post("/v1/messages/batch", json={"messages": [{"topic": "x", "payload": 1}]}),
                http.post("/v1/claim", json={"topics": ["x"], "wait": 0.5}),
                http.post("/v1/claim", json={"topics": ["y"], "wait": 0.2}),
                http.post("/v1/dead/redrive", json={"ids": [dead]}),
                http.patch("/v1/topics/t", json={"max_attempts": 7}),
                http.post("/v1/topics/t/pause", json={"reason": "x"}),
                http.post("/v1/topics/t/resume"),
                http.post("/v1/messages/cancel", json={"ids": [waits], "reason": "x"}),
                http.post("/v1/maintenance/run"),
            ]
    finally:
        site.stop()

    assert [(a.request.url.path, a.text[:300]) for a in answers if traps.caught(a.text) or a.status_code >= 500] == []


# Publishing, on connections whose path is their user's

OPTIONS: list[dict[str, Any]] = [
    {},
    {"key": "a", "ttl": timedelta(hours=1), "delay": timedelta(seconds=1), "headers": {"a": 1}, "priority": 1},
    {"key": "a", "on_conflict": "replace"},
    {"key": "a", "on_conflict": "append"},
    {"key": "b", "channel": "c", "on_conflict": "ignore", "max_attempts": 3},
]


def everything(topic: str) -> list[NewMessage]:
    return [
        NewMessage(topic=topic, payload=1, headers={"a": 1}),
        NewMessage(topic=topic, body=b"\x00", delay=timedelta(seconds=1), ttl=timedelta(hours=1)),
    ]


@pytest.mark.every_server
@pytest.mark.parametrize("policed", [False, True], ids=["nothing is policed", "something is"])
def test_no_publish_calls_a_trap(trapped: Database, queue: Queue, policed: bool) -> None:
    queue.arm()
    if policed:
        queue.policy("p", payload_schema='{"type": "integer"}')
    conn = trapped.connect()

    for options in OPTIONS:
        publish(conn, "t", 1, **options)
    first = publish(conn, "p", 1)
    publish(conn, "t", 1, after=[first])
    publish(conn, "t", body=b"x")
    publish_many(conn, everything("t"))
    rows = CopyRows(everything("t"))
    for part in rows.parts(conn.execute(READ_START.sql.encode()).fetchone()):
        for statement in part.inserts():
            conn.execute(statement.sql.encode(), statement.values)

    assert queue.value("SELECT count(*) FROM messages.message") > 0
    assert conn.execute("SHOW search_path").fetchone() == (traps.PATH,)


def test_no_publish_on_an_async_connection_calls_a_trap(trapped: Database, queue: Queue) -> None:
    async def work() -> None:
        async with await psycopg.AsyncConnection.connect(trapped.dsn, autocommit=True) as conn:
            await publish(conn, "t", 1)
            await publish_many(conn, everything("t"))
        theirs = await asyncpg.connect(**for_asyncpg(trapped.dsn))
        try:
            await publish(theirs, "t", 1)
            await publish(theirs, "t", 1, key="a", ttl=timedelta(hours=1))
            await publish_many(theirs, everything("t"))
        finally:
            await theirs.close()

    asyncio.run(work())

    assert queue.value("SELECT count(*) FROM messages.message") == 7


# Clients, waits and tests


@pytest.mark.parametrize("how", ["by a connection string", "on a connection", "in a transaction"])
def test_no_call_of_a_client_calls_a_trap(trapped: Database, queue: Queue, how: str) -> None:
    conn = trapped.connect(autocommit=how == "on a connection")
    with Client(trapped.dsn if how == "by a connection string" else conn) as client:
        published = client.publish("t", 1)
        client.message(published)
        client.explain(published)
        client.set_policy("t", max_attempts=3)
        client.policy("t")
        client.pause("t", reason="x")
        client.resume("t")
        client.stats()
        client.add_schedule("s", "* * * * *", "t", 1)
        client.schedules()
        client.find_dead()
        client.dead_groups()
        client.cancel([published])
        client.redrive([published])

    assert conn.execute("SHOW search_path").fetchone() == (traps.PATH,)
    if how == "in a transaction":
        conn.rollback()
        assert queue.value("SELECT count(*) FROM messages.message_archive") == 0


def test_no_wait_calls_a_trap(trapped: Database, queue: Queue) -> None:
    async def cancelled() -> int:
        async with AsyncClient(trapped.dsn) as client:
            published = await client.publish("t", 1)
            await client.cancel([published])
            assert (await client.wait_for(published)).result == "cancelled"
            return int(published)

    ended = asyncio.run(cancelled())

    assert wait_for(trapped.dsn, ended).result == "cancelled"
    assert wait_for(trapped.connect(), ended).result == "cancelled"
    assert wait_for(trapped.connect(autocommit=False), ended).result == "cancelled"
    with Waiter(trapped.dsn) as waiter:
        assert waiter.wait_for(ended).result == "cancelled"


def test_no_test_of_a_user_calls_a_trap(trapped: Database, queue: Queue) -> None:
    def work(payload: Any, ctx: Any) -> None:
        with ctx.transaction() as conn:
            ctx.output = conn.execute("SHOW search_path").fetchone()[0]

    for where in (trapped.connect(), trapped.dsn):
        queue.publish("t")
        testing.drain(where, {"t": work})
    testing.clean(trapped.connect())


# Spark


def test_no_connection_of_spark_calls_a_trap(trapped: Database) -> None:
    with connection.connect(trapped.dsn) as conn:
        connection.check(conn, "message_archive", ["id"])
        assert conn.execute("SHOW search_path").fetchone() == ("pg_catalog, pg_temp",)

    (batch,) = connection.arrow(trapped.dsn, "SELECT current_setting('search_path') AS path, now() AS at")
    assert batch.to_pylist()[0]["path"] == "pg_catalog,pg_temp"
