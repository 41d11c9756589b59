"""Two queues in one database have jobs of their own, whose role may maintain only its queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from pgrouse import migrate, use_schema
from pgrouse.database.install import pg_cron as cron
from tests.server.deadline import eventually
from tests.server.postgres import Database, Postgres

Connection = psycopg.Connection[Any]
pytestmark = [pytest.mark.pg_cron]
NAMES = ("messages", 'My "Queue"')


@pytest.fixture
def jobs(server: Postgres) -> Iterator[Connection]:
    """A connection to the database in which pg_cron keeps its jobs; at the end it has none."""
    with server.admin(server.cron_database) as conn:
        launchers = "SELECT FROM pg_stat_activity WHERE backend_type = 'pg_cron launcher'"
        eventually(lambda: conn.execute(launchers).rowcount)
        yield conn
        for (jobid,) in conn.execute("SELECT jobid FROM cron.job").fetchall():
            conn.execute("SELECT cron.unschedule(%s::bigint)", [jobid])


@pytest.fixture
def queues(database: Database) -> list[Connection]:
    """A connection for each of two queues in one database."""
    migrate(database.dsn, schema=NAMES[1])
    return [_connected(database, name) for name in NAMES]


def _connected(database: Database, name: str) -> Connection:
    with use_schema(name):
        return database.connect()


def test_two_queues_have_jobs_of_their_own(queues: list[Connection], jobs: Connection, database: Database) -> None:
    scheduled = [cron.install(each) for each in queues]
    found = [cron.check(each) for each in queues]
    removed = cron.remove(queues[1])

    assert scheduled == [[f"{name}.{job}@{database.name}" for job in ("tick", "prune_cron_history")] for name in NAMES]
    assert found == [[], []]
    assert sorted(removed) == sorted(scheduled[1])
    left = {name for (name,) in jobs.execute("SELECT jobname::text FROM cron.job")}
    assert left == set(scheduled[0])
    assert cron.check(queues[0]) == []


def test_a_job_maintains_its_own_queue_with_the_rights_of_its_role(
    queues: list[Connection], jobs: Connection, database: Database
) -> None:
    for each in queues:
        cron.install(each)
    commands = jobs.execute("SELECT username, command FROM cron.job WHERE database = %s", [database.name]).fetchall()

    with psycopg.connect(database.dsn, autocommit=True) as conn:
        for user, command in sorted(commands):
            conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(user)))
            conn.execute(command.encode())
            ticked = [
                each.execute("SELECT count(*) FROM messages.tick_mark WHERE caller = 'cron'").fetchone()
                for each in queues
            ]
            assert [count > 0 for ((count,),) in zip(ticked, strict=True)] == [not user.startswith("My"), True]
            conn.execute("RESET ROLE")

    assert [user for user, _ in sorted(commands)] == ['My "Queue"_cron', "messages_cron"]


def test_the_longest_names_do_not_meet(queues: list[Connection], jobs: Connection, server: Postgres) -> None:
    names = ["x" * 43 + each for each in "ab"]
    with server.new_database() as other:
        for name in names:
            migrate(other.dsn, schema=name)
            conn = _connected(other, name)
            assert len(set(cron.install(conn))) == 2
            assert cron.check(conn) == []

        made = [name for (name,) in jobs.execute("SELECT jobname::text FROM cron.job")]
        assert len(made) == len(set(made)) == 4
        assert max(len(each.encode()) for each in made) <= 63
