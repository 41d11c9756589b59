"""A healthy system has no finding.

Some findings need a private server: prepared transactions, a pg_cron that does not work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pgrouse.config.config import Config
from pgrouse.database.install import pg_cron as cron
from pgrouse.doctor import Finding, Level, examine
from tests.daemon.process import Fleet
from tests.server.postgres import Database
from tests.server.servers import Missing, Servers

Admin = psycopg.Connection[Any]
# Those of the tests keep nothing on disk, which the doctor reports.
SOUND = ("fsync", "full_page_writes", "autovacuum")


@pytest.fixture(scope="module")
def database(session_servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A queue on a private server that is set up as it should be, with pg_cron's jobs and a daemon."""
    try:
        with session_servers.private_server() as server:
            if server.pg_cron is None:
                pytest.skip(
                    "no PostgreSQL with pg_cron is installed: `apt-get install postgresql-15-cron` on Debian 12"
                )
            with server.admin() as admin:
                for name in SOUND:
                    admin.execute(f"ALTER SYSTEM SET {name} = on".encode())
                admin.execute("ALTER SYSTEM SET max_prepared_transactions = 2")
            server.place.stop()
            server.place.start()
            fleet = Fleet(tmp_path_factory.mktemp("daemon"))
            with server.new_database(template=server.migrated) as database:
                cron.install(database.connect())
                fleet.start(database.connect(), {"job": "work:echo"}, dsn=database.dsn, maintenance_interval="0.2s")
                yield database
                fleet.kill()
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def settings(database: Database) -> Config:
    """A configuration with a handler."""
    return Config.model_validate({"database": {"dsn": database.dsn}, "topics": {"job": {"handler": "work:echo"}}})


@pytest.fixture
def jobs(database: Database) -> Iterator[Admin]:
    """A connection to the database of pg_cron's jobs, which are restored at the end."""
    with database.server.admin(database.server.cron_database) as admin:
        yield admin
        cron.install(database.connect())


def about_pg_cron(settings: Config) -> list[Finding]:
    return examine(settings, ["pg_cron"])


def test_a_healthy_system_has_no_finding(settings: Config, eventually: Callable[..., Any]) -> None:
    def is_well() -> bool:
        assert [each for each in examine(settings) if each.level is not Level.OK] == []
        return True

    # The launcher of pg_cron starts a moment after its server, a daemon reports its state each second.
    eventually(is_well, within_s=60)


def test_a_forgotten_prepared_transaction_is_found_and_ended(database: Database) -> None:
    conn = database.connect()
    with conn.transaction():
        conn.execute("CREATE TABLE effect (n int)")
        conn.execute("PREPARE TRANSACTION 'forgotten'")
    query = "SELECT what, fix FROM messages.examine_snapshots('0 s') WHERE what LIKE '%prepared%'"

    ((what, fix),) = conn.execute(query).fetchall()
    conn.execute(fix.split(" or ")[1].encode())

    assert what.startswith("the prepared transaction 'forgotten' of postgres has held a snapshot for ")
    assert conn.execute(query).fetchall() == []


def test_a_forgotten_prepared_transaction_of_another_database_is_found_since_exports_wait_for_it(
    database: Database,
) -> None:
    with database.server.admin() as admin:
        name = admin.info.dbname
        admin.execute("BEGIN; CREATE TABLE effect (n int); PREPARE TRANSACTION 'elsewhere'")

        ((what, fix),) = database.connect().execute(
            "SELECT what, fix FROM messages.examine_snapshots('0 s') WHERE what LIKE '%elsewhere%'"
        )
        admin.execute("ROLLBACK PREPARED 'elsewhere'")

    assert f"of postgres in database {name} has held a snapshot for " in what
    assert what.endswith("what has ended since waits for exports and streams")
    assert fix.endswith(f" in database {name}")


def test_a_disabled_job_fails_until_the_fix_is_run(settings: Config, jobs: Admin, database: Database) -> None:
    jobs.execute("UPDATE cron.job SET active = false WHERE command LIKE '%messages.tick%'")

    (found,) = about_pg_cron(settings)
    cron.install(database.connect())

    assert (found.level, found.detail) == (Level.FAIL, "inactive")
    assert found.fix == "run `pgrouse cron install`"
    assert {each.level for each in about_pg_cron(settings)} == {Level.OK}


def test_missing_jobs_are_a_warning(settings: Config, jobs: Admin, database: Database) -> None:
    cron.remove(database.connect())

    found = about_pg_cron(settings)

    assert {(each.level, each.detail) for each in found} == {(Level.WARN, "missing")}


def test_a_pg_cron_older_than_any_tested_version_is_reported(settings: Config, jobs: Admin) -> None:
    version = jobs.execute("SELECT extversion FROM pg_extension WHERE extname = 'pg_cron'").fetchone()
    jobs.execute("UPDATE pg_extension SET extversion = '1.3' WHERE extname = 'pg_cron'")
    try:
        found = about_pg_cron(settings)
    finally:
        jobs.execute("UPDATE pg_extension SET extversion = %s WHERE extname = 'pg_cron'", version)

    assert [(each.level, each.detail) for each in found] == [(Level.FAIL, "too_old")]


def test_a_missing_launcher_fails(settings: Config, jobs: Admin, eventually: Callable[..., Any]) -> None:
    launchers = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'pg_cron launcher'"

    def missing() -> list[Finding]:
        # The server starts another one within a second.
        jobs.execute(launchers)
        return [each for each in about_pg_cron(settings) if each.level is Level.FAIL]

    found = eventually(missing)

    assert found[0].detail == "launcher_not_seen"
