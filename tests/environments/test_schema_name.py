"""Messages live in a schema with another name as in `messages`, and do not meet those of a queue there."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from pgrouse import (
    Client,
    KeyTaken,
    NewMessage,
    Waiter,
    migrate,
    publish,
    publish_many,
    use_schema,
    wait_for,
)
from pgrouse.database import schema_name
from tests.api.site import Site
from tests.cli.shell import Shell
from tests.daemon.process import Fleet
from tests.drivers.callers import for_asyncpg
from tests.environments.life import ENDED, Life
from tests.server.deadline import eventually
from tests.server.postgres import Database, Postgres

QUEUE = 'My "Queue" é'


@pytest.fixture(autouse=True)
def _no_default(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The default of the process, which commands set in this one, ends with the test."""
    monkeypatch.setattr(schema_name, "_default", None)
    schema_name._of_environment.cache_clear()
    yield
    schema_name._of_environment.cache_clear()


@pytest.fixture
def by_environment(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names the schema: `shell` has cleared it before."""
    monkeypatch.setenv(schema_name.VARIABLE, QUEUE)


@pytest.mark.slow
@pytest.mark.usefixtures("by_environment")
def test_messages_live_as_usual_where_no_other_schema_is(
    empty_database: Database, life_in: Callable[[Database], Life]
) -> None:
    life = life_in(empty_database)

    life.install()
    daemon = life.run()
    life.publish()
    ended = life.finish(daemon)
    life.look()
    life.leave(daemon)

    assert ended == ENDED
    with psycopg.connect(empty_database.dsn) as conn:
        assert conn.execute("SELECT to_regnamespace('messages')").fetchone() == (None,)


@pytest.mark.usefixtures("by_environment")
def test_the_doctor_finds_nothing_wrong_with_another_schema(empty_database: Database, life_in: Any) -> None:
    life = life_in(empty_database)
    life.install()
    daemon = life.run()

    found = life.pgrouse("doctor", "--json").objects
    with empty_database.connect() as conn:
        conn.execute("DROP FUNCTION messages.prune")
        conn.execute("REVOKE EXECUTE ON FUNCTION messages.claim FROM messages_worker")
    broken = {each["code"]: each for each in life.pgrouse("doctor", "--json").objects if each["level"] == "fail"}

    of_the_schema = {"schema", "functions", "objects", "grants", "rights", "listener", "triggers", "public_rights"}
    assert {each["code"] for each in found if each["level"] == "ok"} >= of_the_schema
    # The server of tests may lose what it has written.
    assert {each["code"] for each in found if each["level"] == "fail"} <= {"durability", "autovacuum"}
    assert broken["functions"]["what"] == '"My ""Queue"" é".prune is gone'
    assert broken["functions"]["fix"].startswith('UPDATE "My ""Queue"" é".migration')
    assert broken["grants"]["what"].startswith('My "Queue" é_worker may not call')
    assert daemon.alive


@pytest.fixture
def both(server: Postgres, database: Database) -> Database:
    """A database with two queues: that of `messages`, and another."""
    assert migrate(database.dsn, schema=QUEUE)
    return database


def test_two_queues_of_one_database_do_not_meet(both: Database, fleet: Fleet) -> None:
    topics = {"echo": "life:echo", "again": {"handler": "life:again", "max_attempts": 3}, "thread": "life:in_thread"}
    queues = {name: schema_name.schema_name(name) for name in ("messages", QUEUE)}
    daemons = {}
    for name, schema in queues.items():
        with use_schema(schema):
            daemons[name] = fleet.start(
                both.connect(),
                topics,
                dsn=both.dsn,
                database={"schema": name},
                name=f"d{len(daemons)}",
                arguments=("--apply-policies",),
            )

    with use_schema(QUEUE), both.connect() as conn:
        ids = [publish(conn, "again", {"n": 1}), publish(conn, "thread", 1)]
        publish_many(conn, [NewMessage(topic="echo", payload=nth) for nth in range(50)])
        ended = [wait_for(conn, each, timeout=60).result for each in ids]
    with both.connect() as conn:
        last = publish(conn, "echo", 1)
        wait_for(conn, last, timeout=60)

    assert ended == ["success", "success"]
    with ExitStack() as stack:
        archived = {}
        for name, schema in queues.items():
            conn = stack.enter_context(_connected(both, schema))
            rows = "SELECT count(*), count(DISTINCT handled_by), min(handled_by) FROM messages.message_archive"
            eventually(lambda conn=conn: conn.execute("SELECT FROM messages.message").rowcount == 0)
            archived[name] = conn.execute(rows).fetchone()
            assert conn.execute("SELECT count(*) FROM messages.worker").fetchone() == (1,)
    # The handler of `thread` publishes an `echo`, into its own queue.
    assert [(count, workers) for count, workers, _ in archived.values()] == [(1, 1), (53, 1)]
    assert [worker[:2] for _, _, worker in archived.values()] == ["d0", "d1"]
    bad = [e for each in daemons.values() for e in each.logged() if e.get("level") in ("warning", "error")]
    assert {e["event"] for e in bad} == {"attempt.failed"}


def test_a_notification_of_a_queue_does_not_reach_the_other(both: Database) -> None:
    with _connected(both, schema_name.DEFAULT) as heard, _connected(both, schema_name.schema_name(QUEUE)) as conn:
        for channel in ("new_message", "topic_changed", "cancelled", "schedule_changed", "dead_message"):
            heard.execute(f"LISTEN {channel}".encode())
            conn.execute(f"LISTEN {channel}".encode())
        conn.execute("INSERT INTO messages.topic (topic, notify) VALUES ('t', 'always')")
        conn.execute("INSERT INTO messages.message (topic, payload) VALUES ('t', '1')")

        got = {each.channel for each in conn.notifies(timeout=10, stop_after=2)}
        others = list(heard.notifies(timeout=0.2))

    assert got == {f"{QUEUE}_topic_changed", f"{QUEUE}_new_message"}
    assert others == []


def test_settings_of_a_transaction_are_those_of_one_queue(both: Database) -> None:
    with _connected(both, schema_name.DEFAULT) as conn:
        conn.execute("SELECT set_config('messages.actor', 'ann', false)")
        rendered = schema_name.schema_name(QUEUE).render("SELECT messages.actor()")

        assert conn.execute("SELECT messages.actor()").fetchone() == ("ann",)
        assert conn.execute(rendered.encode()).fetchone() == ("postgres",)


def test_messages_that_end_in_both_queues_in_one_transaction_release_their_own_successors(both: Database) -> None:
    """The ends of a transaction are kept in a setting until it commits."""
    queues = [schema_name.DEFAULT, schema_name.schema_name(QUEUE)]
    followers = []
    with both.connect() as conn:
        for schema in queues:
            with use_schema(schema):
                first = publish(conn, "t", 1)
                followers.append(publish(conn, "u", 2, after=[first]))
        with conn.transaction():
            for schema in queues:
                claimed = schema.render("SELECT id, claim_id FROM messages.claim('w', ARRAY['t'], 1)")
                ((id_, claim_id),) = conn.execute(claimed.encode()).fetchall()
                conn.execute(schema.render("SELECT messages.complete(%s, %s)").encode(), [[id_], [claim_id]])
        ready = [
            conn.execute(s.render("SELECT id FROM messages.claim('w', ARRAY['u'], 1)").encode()).fetchall()
            for s in queues
        ]

    assert ready == [[(followers[0],)], [(followers[1],)]]


def test_a_role_of_a_queue_has_no_right_in_the_other(both: Database) -> None:
    with _connected(both, schema_name.schema_name(QUEUE)) as conn:
        conn.execute("SET ROLE messages_publisher")
        conn.execute("INSERT INTO messages.message (topic, payload) VALUES ('t', '1')")
        (role,) = conn.execute("SELECT current_user::text").fetchone() or ("",)
    with both.connect() as conn:
        conn.execute(f"""SET ROLE "{role.replace('"', '""')}\"""".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("INSERT INTO messages.message (topic, payload) VALUES ('t', '1')")

    assert role == f"{QUEUE}_publisher"


def test_every_kind_of_connection_publishes_into_the_schema(both: Database) -> None:
    with use_schema(QUEUE):
        asyncio.run(_publish_by_asyncpg(both.dsn))
        engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(both.dsn), poolclass=NullPool)
        with engine.begin() as conn:
            publish(conn, "t", "sqlalchemy")
            publish_many(conn, [NewMessage(topic="t", payload="many sqlalchemy")])
        with psycopg.connect(both.dsn) as conn, conn.cursor() as cursor:
            publish(cursor, "t", "cursor")
            publish_many(conn, [NewMessage(topic="t", payload="returning")], returning=True)
    with Client(both.dsn, schema=QUEUE) as queue:
        queue.publish("t", "client")
        queue.publish("t", "key", key="k", on_conflict="ignore")
        with pytest.raises(KeyTaken):
            queue.publish("t", "again", key="k")
    with psycopg.connect(both.dsn) as conn:
        given = Client(conn, schema=QUEUE)
        given.publish("t", "client of a connection")
        given.set_policy("t", max_attempts=7)
        # Statements of the caller are the caller's.
        assert conn.execute("SELECT count(*) FROM messages.message").fetchone() == (0,)

    with _connected(both, schema_name.schema_name(QUEUE)) as conn:
        payloads = {payload for (payload,) in conn.execute("SELECT payload FROM messages.message")}
        policy = conn.execute("SELECT max_attempts FROM messages.topic WHERE topic = 't'").fetchone()
    assert payloads == {
        "asyncpg", "many asyncpg", "sqlalchemy", "many sqlalchemy", "cursor", "returning", "client", "key",
        "client of a connection",
    }  # fmt: skip
    assert policy == (7,)


async def _publish_by_asyncpg(dsn: str) -> None:
    pool = await asyncpg.create_pool(**for_asyncpg(dsn), min_size=1)
    async with pool, pool.acquire() as conn:
        await publish(conn, "t", "asyncpg")
        await publish_many(conn, [NewMessage(topic="t", payload="many asyncpg")])


def test_a_waiter_hears_of_the_queue_that_it_is_for(both: Database, fleet: Fleet) -> None:
    with use_schema(QUEUE):
        fleet.start(both.connect(), {"echo": "life:echo"}, dsn=both.dsn, database={"schema": QUEUE})
    with Client(both.dsn, schema=QUEUE) as queue, Waiter(both.dsn, schema=QUEUE) as waiter:
        published = queue.publish("echo", "x", delay=timedelta(seconds=0.5))
        assert waiter.wait_for(published, 60).output == "x"


def test_the_web_server_shows_the_queue_of_its_configuration(both: Database) -> None:
    with use_schema(QUEUE):
        site = Site(both)
        try:
            with site.client(site.token("operator", "publisher", "worker")) as http:
                published = http.post("/v1/messages", json={"topic": "t", "payload": "messages.x"}).json()["id"]
                assert (
                    http.post("/v1/claim", json={"topics": ["t"], "wait": 1}).json()["messages"][0]["id"] == published
                )
                assert http.get("/").status_code == 200
                assert http.get(f"/messages/{published}").status_code == 200
        finally:
            site.stop()
    with both.connect() as conn:
        assert conn.execute("SELECT count(*) FROM messages.message").fetchone() == (0,)


def test_a_command_that_fails_names_the_schema(
    shell: Shell, empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGROUSE_DSN", empty_database.dsn)
    monkeypatch.setenv(schema_name.VARIABLE, "orders")

    ended = shell("cron", "check")

    assert "has no schema `orders`" in ended.err


def test_a_name_that_cannot_be_is_an_error_of_the_configuration(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(schema_name.VARIABLE, "it's")

    ended = shell("config", "check")

    assert ended.code == 78
    assert "database.schema" in ended.err
    assert """may not contain "'\"""" in ended.err


def test_the_image_of_postgres_installs_no_other_schema(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "docker/postgres/initdb.d/20-schema.sh"

    ended = subprocess.run(
        ["bash", script], env={**os.environ, schema_name.VARIABLE: "orders"}, cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip

    assert ended.returncode == 1
    assert "set PGROUSE_INSTALL=off and run 'pgrouse migrate --cron'" in ended.stderr


def _connected(database: Database, schema: schema_name.SchemaName) -> psycopg.Connection[Any]:
    with use_schema(schema):
        return database.connect()
