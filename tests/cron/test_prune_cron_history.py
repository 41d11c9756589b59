"""pg_cron keeps a row for each run without end; messages.prune_cron_history() deletes the old ones of our own jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pgrouse.database.install import pg_cron as cron
from pgrouse.database.install import schema
from tests.cron.minute import until_its_middle
from tests.server import servers
from tests.server.postgres import Postgres

Connection = psycopg.Connection[Any]
Prune = Callable[[Connection], int]
pytestmark = pytest.mark.pg_cron
OURS, THEIRS = "/* pgrouse */ SELECT messages.tick('cron')", "SELECT messages.tick('cron')"


@pytest.fixture(scope="module")
def installed(server: Postgres) -> Iterator[Connection]:
    """A connection to a queue in the same database as pg_cron, with jobs that do not run."""
    if server.pg_cron is None:
        pytest.skip(f"this server has no pg_cron; {servers.how_to_install(servers.LOCAL)}")
    with server.admin(server.cron_database) as conn:
        schema.migrate(conn)
        until_its_middle(conn)
        cron.install(conn)
        # A job that runs would add to the history.
        for (jobid,) in conn.execute("SELECT jobid FROM cron.job").fetchall():
            conn.execute("SELECT cron.alter_job(%s, active => false)", [jobid])
        yield conn
        conn.execute("RESET SESSION AUTHORIZATION")
        cron.remove(conn)
        conn.execute("TRUNCATE cron.job_run_details")
        conn.execute("DROP SCHEMA messages CASCADE")


@pytest.fixture
def queue_in_cron_database(installed: Connection) -> Connection:
    """The same connection, as its own user and with an empty history."""
    installed.execute("RESET SESSION AUTHORIZATION")
    installed.execute("TRUNCATE cron.job_run_details")
    return installed


def by_function(conn: Connection) -> int:
    row = conn.execute("SELECT messages.prune_cron_history()").fetchone()
    assert row
    return int(row[0])


def by_command(conn: Connection) -> int:
    with conn.transaction():
        cursor = conn.execute(schema.script("cron/prune_elsewhere.sql"))
        while cursor.nextset():
            pass
        return cursor.rowcount


@pytest.fixture(params=[by_function, by_command])
def prune(request: pytest.FixtureRequest) -> Prune:
    """Both ways to prune: as a function in the same database, as a command in another one."""
    chosen: Prune = request.param
    return chosen


def add_runs(conn: Connection, count: int, age: str | None, command: str = OURS, user: str = "messages_cron") -> None:
    conn.execute(
        """
        INSERT INTO cron.job_run_details (jobid, database, username, command, status, start_time)
        SELECT 1, current_database(), %s, %s, 'succeeded', now() - %s::interval FROM generate_series(1, %s)
        """,
        [user, command, age, count],
    )


def runs(conn: Connection) -> int:
    row = conn.execute("SELECT count(*) FROM cron.job_run_details").fetchone()
    assert row
    return int(row[0])


@pytest.mark.long
@pytest.mark.every_server
def test_runs_older_than_seven_days_are_deleted_and_newer_ones_kept(
    queue_in_cron_database: Connection, prune: Prune
) -> None:
    add_runs(queue_in_cron_database, 3, "7 days 1 minute")
    add_runs(queue_in_cron_database, 2, "6 days 23 hours")

    assert prune(queue_in_cron_database) == 3
    assert runs(queue_in_cron_database) == 2


def test_runs_of_other_jobs_are_kept_however_old(queue_in_cron_database: Connection, prune: Prune) -> None:
    add_runs(queue_in_cron_database, 3, "1 year", command=THEIRS)

    assert prune(queue_in_cron_database) == 0
    assert runs(queue_in_cron_database) == 3


def test_one_call_deletes_at_most_ten_thousand_the_oldest_first(
    queue_in_cron_database: Connection, prune: Prune
) -> None:
    add_runs(queue_in_cron_database, 1, "9 days")
    add_runs(queue_in_cron_database, 10_000, "8 days")

    assert prune(queue_in_cron_database) == 10_000
    assert queue_in_cron_database.execute(
        "SELECT now() - start_time < '8 days 1 hour' FROM cron.job_run_details"
    ).fetchall() == [(True,)]
    assert prune(queue_in_cron_database) == 1


def test_runs_that_never_began_are_deleted_with_those_around_them(
    queue_in_cron_database: Connection, prune: Prune
) -> None:
    add_runs(queue_in_cron_database, 2, None)
    add_runs(queue_in_cron_database, 1, "8 days")
    add_runs(queue_in_cron_database, 1, None)

    assert prune(queue_in_cron_database) == 3
    assert runs(queue_in_cron_database) == 1


def test_a_job_that_never_begins_leaves_at_most_twenty_thousand_runs(
    queue_in_cron_database: Connection, prune: Prune
) -> None:
    add_runs(queue_in_cron_database, 20_005, None)

    assert prune(queue_in_cron_database) == 5


@pytest.mark.every_server
def test_the_role_of_the_jobs_deletes_only_its_own_runs(queue_in_cron_database: Connection, prune: Prune) -> None:
    add_runs(queue_in_cron_database, 2, "8 days")
    add_runs(queue_in_cron_database, 1, "8 days", user="postgres")
    queue_in_cron_database.execute("SET SESSION AUTHORIZATION messages_cron")

    pruned = prune(queue_in_cron_database)

    queue_in_cron_database.execute("RESET SESSION AUTHORIZATION")
    assert pruned == 2
    assert runs(queue_in_cron_database) == 1


def test_without_pg_cron_in_the_database_nothing_happens(db: Connection) -> None:
    assert by_function(db) == 0


def test_a_role_that_cannot_read_pg_cron_changes_nothing(queue_in_cron_database: Connection) -> None:
    add_runs(queue_in_cron_database, 1, "8 days")
    queue_in_cron_database.execute("CREATE ROLE cron_test_outsider")
    queue_in_cron_database.execute("GRANT messages_maintainer TO cron_test_outsider")
    queue_in_cron_database.execute("GRANT EXECUTE ON FUNCTION messages.prune_cron_history TO messages_maintainer")
    queue_in_cron_database.execute("SET SESSION AUTHORIZATION cron_test_outsider")

    try:
        pruned = by_function(queue_in_cron_database)
    finally:
        queue_in_cron_database.execute("RESET SESSION AUTHORIZATION")
        queue_in_cron_database.execute(
            "REVOKE EXECUTE ON FUNCTION messages.prune_cron_history FROM messages_maintainer"
        )
        queue_in_cron_database.execute("DROP ROLE cron_test_outsider")
    assert pruned == 0
    assert runs(queue_in_cron_database) == 1
