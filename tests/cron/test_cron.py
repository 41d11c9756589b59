"""pg_cron maintains the queue while no daemon is alive: its jobs are installed, checked and removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from pgrouse.database import session_settings
from pgrouse.database.install import pg_cron as cron
from pgrouse.database.install import schema
from pgrouse.database.install.pg_cron import CronFinding, CronFindingKind, CronUnavailable
from tests.cron.minute import until_its_middle
from tests.server.deadline import eventually
from tests.server.postgres import Database, Postgres

Connection = psycopg.Connection[Any]
Eventually = Callable[..., Any]
# Its versions differ, with those of the servers.
pytestmark = [pytest.mark.pg_cron, pytest.mark.every_server]
TICK, PRUNE = "messages.tick", "messages.prune_cron_history"


@pytest.fixture
def jobs(server: Postgres, eventually: Eventually) -> Iterator[Connection]:
    """A connection to the database in which pg_cron keeps its jobs; at the end it has none, and no history."""
    with server.admin(server.cron_database) as conn:
        # The launcher exits at the first start of a server, because its database does not exist yet, and is started
        # again.
        launchers = "SELECT FROM pg_stat_activity WHERE backend_type = 'pg_cron launcher'"
        eventually(lambda: conn.execute(launchers).rowcount)
        until_its_middle(conn)
        yield conn
        conn.execute("TRUNCATE cron.job_run_details")
        for (jobid,) in conn.execute("SELECT jobid FROM cron.job").fetchall():
            conn.execute("SELECT cron.unschedule(%s::bigint)", [jobid])


@pytest.fixture
def queue(db: Connection, jobs: Connection) -> Connection:
    """A connection to a queue in another database than that of the jobs."""
    return db


@pytest.fixture
def queue_in_cron_database(server: Postgres, jobs: Connection) -> Iterator[Connection]:
    """A connection to a queue in the same database as the jobs."""
    with server.admin(server.cron_database) as conn:
        schema.migrate(conn)
        yield conn
        conn.execute("DROP SCHEMA messages CASCADE")


def name_of(job: str, queue: Connection) -> str:
    return f"{job}@{queue.info.dbname}"


def scheduled(jobs: Connection) -> list[dict[str, Any]]:
    query = (
        "SELECT jobid, jobname::text AS jobname, schedule, command, database, username, active FROM cron.job "
        "ORDER BY schedule"
    )
    return jobs.cursor(row_factory=dict_row).execute(query).fetchall()


def job_id(jobs: Connection, name: str) -> int:
    row = jobs.execute("SELECT jobid FROM cron.job WHERE jobname = %s", [name]).fetchone()
    assert row
    return int(row[0])


def kinds(findings: list[CronFinding]) -> list[tuple[CronFindingKind, str | None]]:
    return [(each.kind, each.job) for each in findings]


def add_run(
    jobs: Connection, jobid: int, status: str, message: str = "", age: str | None = "0 s", command: str = ""
) -> None:
    jobs.execute(
        """
        INSERT INTO cron.job_run_details (
          jobid, database, username, command, status, return_message, start_time, end_time)
        SELECT %s, current_database(), 'messages_cron', %s, %s, %s, t.at, t.at
        FROM (SELECT now() - %s::interval) AS t (at)
        """,
        [jobid, command, status, message, age],
    )


@pytest.mark.long
def test_installing_schedules_each_job_once_for_the_role_of_pg_cron(queue: Connection, jobs: Connection) -> None:
    installed = cron.install(queue)

    assert installed == [name_of(TICK, queue), name_of(PRUNE, queue)]
    assert [
        (job["jobname"], job["schedule"], job["database"], job["username"], job["active"]) for job in scheduled(jobs)
    ] == [
        (name_of(TICK, queue), "* * * * *", queue.info.dbname, "messages_cron", True),
        (name_of(PRUNE, queue), "17 3 * * *", jobs.info.dbname, "messages_cron", True),
    ]


@pytest.mark.long
def test_in_the_database_of_the_queue_the_jobs_have_plain_names_and_the_same_database(
    queue_in_cron_database: Connection, jobs: Connection
) -> None:
    installed = cron.install(queue_in_cron_database)

    assert installed == [TICK, PRUNE]
    assert {(job["jobname"], job["database"]) for job in scheduled(jobs)} == {
        (TICK, jobs.info.dbname),
        (PRUNE, jobs.info.dbname),
    }


def test_queues_in_the_same_and_in_another_database_do_not_change_each_others_jobs(
    queue: Connection, queue_in_cron_database: Connection, jobs: Connection
) -> None:
    cron.install(queue)
    cron.install(queue_in_cron_database)

    assert cron.install(queue) == cron.install(queue_in_cron_database) == []
    assert cron.check(queue) == cron.check(queue_in_cron_database) == []
    cron.remove(queue_in_cron_database)
    assert {job["jobname"] for job in scheduled(jobs)} == {name_of(TICK, queue), name_of(PRUNE, queue)}


def test_a_caller_with_another_row_factory_gets_the_same_findings(database: Database, jobs: Connection) -> None:
    with database.connect(row_factory=dict_row) as conn:
        installed = cron.install(conn)

        assert installed == [name_of(TICK, conn), name_of(PRUNE, conn)]
        assert cron.check(conn) == []


ELSEWHERE = "SELECT cron.schedule_in_database(%(tick)s, '* * * * *', 'SELECT 1', 'postgres')"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("SELECT cron.alter_job(%(id)s, active => false)", {CronFindingKind.INACTIVE}),
        ("SELECT cron.unschedule(%(id)s::bigint)", {CronFindingKind.MISSING}),
        (
            "UPDATE cron.job SET jobname = 'mine' WHERE jobid = %(id)s",
            {CronFindingKind.MISSING, CronFindingKind.DUPLICATE},
        ),
        ("SELECT cron.alter_job(%(id)s, database => 'postgres')", {CronFindingKind.OTHER_DATABASE}),
        (
            ELSEWHERE,
            {CronFindingKind.OTHER_USER, CronFindingKind.OTHER_DATABASE, CronFindingKind.OTHER_COMMAND},
        ),
        ("SELECT cron.alter_job(%(id)s, schedule => '0 4 * * *')", {CronFindingKind.OTHER_SCHEDULE}),
        ("SELECT cron.alter_job(%(id)s, command => 'SELECT 1')", {CronFindingKind.OTHER_COMMAND}),
    ],
)
def test_a_job_that_was_changed_is_found_and_restored(
    queue: Connection, jobs: Connection, change: str, expected: set[CronFindingKind]
) -> None:
    cron.install(queue)
    before, tick = as_installed(jobs), name_of(TICK, queue)
    assert cron.install(queue) == cron.check(queue) == []
    jobs.execute(change.encode(), {"id": job_id(jobs, tick), "tick": tick})

    found = cron.check(queue)
    fixed = cron.install(queue)

    assert {each.kind for each in found} == expected
    assert {each.job for each in found} <= {tick, "mine"}
    assert fixed == [tick]
    assert cron.check(queue) == []
    assert as_installed(jobs) == before


def as_installed(jobs: Connection) -> list[dict[str, Any]]:
    """Return the jobs without their numbers: a job that is scheduled again has another."""
    return [{**job, "jobid": None} for job in scheduled(jobs)]


def test_a_failed_run_is_found_until_the_next_one_succeeds(queue: Connection, jobs: Connection) -> None:
    cron.install(queue)
    tick = name_of(TICK, queue)
    add_run(jobs, job_id(jobs, tick), "failed", "ERROR:  out of\nshared memory")

    found = cron.check(queue)
    add_run(jobs, job_id(jobs, tick), "succeeded")

    assert kinds(found) == [(CronFindingKind.LAST_RUN_FAILED, tick)]
    assert "ERROR: out of shared memory" in str(found[0])
    assert cron.check(queue) == []


def test_a_run_that_could_not_connect_is_reported_with_the_fix(queue: Connection, jobs: Connection) -> None:
    cron.install(queue)
    add_run(jobs, job_id(jobs, name_of(TICK, queue)), "failed", "connection failed")

    (found,) = cron.check(queue)

    assert "cron.use_background_workers" in found.fix


def test_ticks_that_stopped_are_found_by_the_age_of_their_mark(queue: Connection) -> None:
    cron.install(queue)
    queue.execute(
        "INSERT INTO messages.tick_mark VALUES ('prune', 'cron', clock_timestamp() - interval '4 minutes', 0)"
    )

    fresh = cron.check(queue, silent_after_s=3600)
    stale = cron.check(queue, silent_after_s=0)

    assert fresh == []
    assert kinds(stale) == [(CronFindingKind.LAUNCHER_NOT_SEEN, None)]


def test_marks_of_daemons_do_not_count_for_pg_cron(queue: Connection) -> None:
    cron.install(queue)
    queue.execute("SELECT messages.tick('cron')")
    queue.execute("UPDATE messages.tick_mark SET ran_at = ran_at - interval '1 day'")
    queue.execute("SELECT messages.tick('daemon')")

    stale = cron.check(queue, silent_after_s=0)

    assert kinds(stale) == [(CronFindingKind.LAUNCHER_NOT_SEEN, None)]


def test_a_removal_leaves_no_job_and_no_mark_and_returns_what_it_removed(queue: Connection, jobs: Connection) -> None:
    cron.install(queue)
    queue.execute("SELECT messages.tick('cron')")

    removed = cron.remove(queue)

    assert removed == sorted([name_of(TICK, queue), name_of(PRUNE, queue)])
    assert scheduled(jobs) == []
    assert queue.execute("SELECT count(*) FROM messages.tick_mark WHERE caller = 'cron'").fetchone() == (0,)


def test_a_removal_waits_for_a_tick_that_writes_its_marks(
    database: Database, queue: Connection, jobs: Connection, eventually: Eventually
) -> None:
    cron.install(queue)
    mark = """
        INSERT INTO messages.tick_mark (task, caller, ran_at, count) VALUES (%s, 'cron', now(), 0)
        ON CONFLICT (task, caller) DO UPDATE SET ran_at = now()"""
    for task in ("prune", "purge"):
        queue.execute(mark, [task])
    tick = database.connect()
    with ThreadPoolExecutor(1) as remover, tick.transaction():
        assert tick.execute("SELECT messages.lock_mutex('tick')").fetchone() == (True,)
        tick.execute(mark, ["purge"])

        removal = remover.submit(cron.remove, queue)
        waits = "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
        eventually(lambda: jobs.execute(waits, [queue.info.backend_pid]).rowcount)
        tick.execute(mark, ["prune"])

    assert removal.result() == sorted([name_of(TICK, queue), name_of(PRUNE, queue)])


def test_a_removal_without_jobs_is_no_error(queue: Connection) -> None:
    assert cron.remove(queue) == []


@pytest.fixture(params=["ALTER DATABASE {old} RENAME TO {new}", "DROP DATABASE {old}"], ids=["renamed", "dropped"])
def left_behind(
    queue: Connection, server: Postgres, empty_database: Database, request: pytest.FixtureRequest
) -> Iterator[list[str]]:
    """The names of the jobs of a queue whose database was renamed or dropped after they were installed."""
    old, new = f"{empty_database.name} of yore", f"{empty_database.name} of now"
    with server.admin() as admin:
        admin.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(old), sql.Identifier(server.migrated))
        )
        with server.admin(old) as conn:
            names = cron.install(conn)
        change = sql.SQL(request.param).format(old=sql.Identifier(old), new=sql.Identifier(new))
        eventually(lambda: _executes(admin, change))  # a job may run in it just now
        yield names
        admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(new)))


def _executes(conn: Connection, statement: sql.Composed) -> bool:
    try:
        conn.execute(statement)
    except psycopg.errors.ObjectInUse:
        return False
    return True


def test_jobs_of_a_database_that_is_gone_are_found_by_every_queue_and_removed_and_no_others(
    queue: Connection, jobs: Connection, left_behind: list[str]
) -> None:
    installed = cron.install(queue)
    jobs.execute("SELECT cron.schedule('of a user', '@daily', 'SELECT 1')")
    jobs.execute("UPDATE cron.job SET database = 'not there' WHERE jobname = 'of a user'")

    found = cron.check(queue)
    removed = cron.remove_left_behind(queue)

    assert kinds(found) == [(CronFindingKind.DATABASE_MISSING, name) for name in left_behind]
    assert "does not exist: it was renamed or dropped" in found[0].text
    assert "run `pgrouse cron install` as a superuser or as messages_cron" in found[0].fix
    assert removed == sorted(left_behind)
    assert {job["jobname"] for job in scheduled(jobs)} == {*installed, "of a user"}
    assert cron.check(queue) == []


@pytest.mark.long
def test_jobs_of_other_users_are_never_changed(queue: Connection, jobs: Connection) -> None:
    jobs.execute("SELECT cron.schedule('theirs', '0 0 1 1 *', 'SELECT 1')")

    cron.install(queue)
    cron.remove(queue)

    assert [job["jobname"] for job in scheduled(jobs)] == ["theirs"]


def test_a_database_with_the_longest_name_gets_jobs_that_are_found_again(server: Postgres, jobs: Connection) -> None:
    long = "x" * 63
    with server.admin() as admin:
        admin.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(long), sql.Identifier(server.migrated))
        )
    try:
        with server.admin(long) as conn:
            installed = cron.install(conn)

            assert len(installed) == 2
            assert cron.install(conn) == []
            assert cron.check(conn) == []
    finally:
        with server.admin() as admin:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(long)))


def test_without_the_schema_the_error_says_to_migrate(empty_database: Database) -> None:
    with pytest.raises(schema.SchemaMismatch, match="pgrouse migrate"):
        cron.install(empty_database.connect())


def test_the_role_of_the_jobs_may_run_their_commands(queue: Connection, jobs: Connection) -> None:
    cron.install(queue)
    tick, prune = (job["command"] for job in scheduled(jobs))

    for conn, command in ((queue, tick), (jobs, prune)):
        conn.execute("SET SESSION AUTHORIZATION messages_cron")
        conn.execute(command.encode())
        conn.execute("RESET SESSION AUTHORIZATION")

    assert queue.execute("SELECT count(*) > 0 FROM messages.tick_mark WHERE caller = 'cron'").fetchone() == (True,)


def test_the_role_of_the_jobs_may_do_nothing_else_and_cannot_be_dropped_by_accident(queue: Connection) -> None:
    cron.install(queue)
    queue.execute("SET SESSION AUTHORIZATION messages_cron")

    for statement in ("SELECT FROM messages.message", "SELECT messages.cancel('{1}')", "DELETE FROM messages.topic"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            queue.execute(statement.encode())

    queue.execute("RESET SESSION AUTHORIZATION")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        queue.execute("DROP ROLE messages_cron")


@pytest.fixture
def owner(server: Postgres, jobs: Connection) -> Iterator[Connection]:
    """A connection to the database of the jobs as a role that owns a schema there and is no superuser."""
    jobs.execute("CREATE ROLE cron_test_owner LOGIN PASSWORD 'owner'")
    jobs.execute(sql.SQL("GRANT CREATE ON DATABASE {} TO cron_test_owner").format(sql.Identifier(server.cron_database)))
    with psycopg.connect(
        server.dsn(server.cron_database, user="cron_test_owner", password="owner"), autocommit=True
    ) as conn:
        schema.migrate(conn)
        yield conn
    for (jobid,) in jobs.execute("SELECT jobid FROM cron.job WHERE username = 'cron_test_owner'").fetchall():
        jobs.execute("SELECT cron.unschedule(%s::bigint)", [jobid])
    jobs.execute("DROP OWNED BY cron_test_owner")
    jobs.execute("DROP ROLE cron_test_owner")


@pytest.mark.parametrize("hidden_rows_are_an_error", [False, True])
def test_an_owner_without_superuser_rights_schedules_its_own_jobs_in_the_database_of_the_queue(
    owner: Connection, jobs: Connection, hidden_rows_are_an_error: bool
) -> None:
    jobs.execute("GRANT USAGE ON SCHEMA cron TO cron_test_owner")
    if hidden_rows_are_an_error:
        session_settings.set_up(owner)

    assert cron.install(owner) == [TICK, PRUNE]
    assert {job["username"] for job in scheduled(jobs)} == {"cron_test_owner"}
    assert cron.remove_left_behind(owner) == []
    assert cron.check(owner) == []
    assert cron.install(owner) == []
    assert cron.remove(owner) == sorted([TICK, PRUNE])
    assert not hidden_rows_are_an_error or owner.execute("SHOW row_security").fetchone() == ("off",)


def test_a_role_that_cannot_read_the_jobs_gets_an_error_with_the_grant(owner: Connection) -> None:
    (found,) = cron.check(owner)

    assert found.kind is CronFindingKind.NOT_VISIBLE
    assert "GRANT USAGE ON SCHEMA cron TO cron_test_owner" in found.fix
    with pytest.raises(CronUnavailable, match="GRANT USAGE"):
        cron.install(owner)


def test_a_role_without_superuser_rights_gets_an_error_for_another_database(queue: Connection) -> None:
    queue.execute("CREATE ROLE cron_test_other")
    queue.execute("GRANT pg_read_all_settings TO cron_test_other")
    queue.execute("SET SESSION AUTHORIZATION cron_test_other")

    with pytest.raises(CronUnavailable, match="only a superuser may schedule from there: connect as a superuser"):
        cron.install(queue)

    queue.execute("RESET SESSION AUTHORIZATION")
    queue.execute("DROP ROLE cron_test_other")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_pg_cron_really_runs_the_jobs_in_both_databases(
    queue: Connection, queue_in_cron_database: Connection, jobs: Connection, eventually: Eventually
) -> None:
    queue.execute("INSERT INTO messages.message (topic, payload) VALUES ('cron.test', '{}')")
    queue.execute("SELECT messages.claim('w', '{cron.test}', 1, p_lock_duration => '1 ms')")
    cron.install(queue)
    cron.install(queue_in_cron_database)

    def ticked(conn: Connection) -> bool:
        last = "SELECT FROM messages.tick_mark WHERE caller = 'cron' AND task = 'prune'"
        return conn.execute(last).rowcount == 1

    eventually(lambda: ticked(queue) and ticked(queue_in_cron_database), within_s=100, every_s=0.2)

    assert queue.execute("SELECT result FROM messages.message_archive").fetchall() == [("lock_expired",)]
    eventually(
        lambda: (
            jobs.execute("SELECT DISTINCT status, username FROM cron.job_run_details").fetchall()
            == [("succeeded", "messages_cron")]
        )
    )
    assert cron.check(queue) == cron.check(queue_in_cron_database) == []
