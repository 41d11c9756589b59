"""The jobs of pg_cron that maintain a queue while no daemon is alive: installs, checks and removes them.

This step is optional: every daemon does the same work. pg_cron keeps the jobs of a whole server in one database
(`cron.database_name`). If that is not the database of the queue, a superuser must install them, and `conn` must be
allowed to connect to that database, too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar, LiteralString

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import class_row, scalar_row, tuple_row

from pgrouse.database import search_path, session_settings
from pgrouse.database.connection_schema import schema_of
from pgrouse.database.install.schema import script
from pgrouse.errors import PgrouseError, SchemaMismatch

Connection = psycopg.Connection[Any]

PRUNE = "prune_cron_history"
MARK = "/* pgrouse */"  # the command of each pgrouse job begins with this
# Change the setting only on a direct connection: behind a pooler, the session has the setting of the database and also
# serves other clients.
SHOW_OWN_JOBS = """
    SELECT set_config('row_security', 'on', false)
    FROM (SELECT pg_backend_pid() AS pid) AS me
    WHERE me.pid = %s AND current_setting('row_security') = 'off'
"""
# Jobs run each minute; two may be skipped because a daemon was doing the same work at that moment.
SILENT_AFTER_S = 180
OLDEST = (1, 4)  # the oldest version that the jobs were tested with
LONGEST_NAME = 63  # bytes; pg_cron 1.4 cuts longer names off
INSTALL = "run `pgrouse cron install`"


class CronFindingKind(StrEnum):
    """The possible problems of the jobs."""

    ABSENT = "absent"
    NOT_VISIBLE = "not_visible"
    SWITCHED_OFF = "switched_off"
    MISSING = "missing"
    INACTIVE = "inactive"
    OTHER_DATABASE = "other_database"
    OTHER_USER = "other_user"
    OTHER_SCHEDULE = "other_schedule"
    OTHER_COMMAND = "other_command"
    DUPLICATE = "duplicate"
    DATABASE_MISSING = "database_missing"
    LAST_RUN_FAILED = "last_run_failed"
    ROLE_MISSING = "role_missing"
    TOO_OLD = "too_old"
    LAUNCHER_NOT_SEEN = "launcher_not_seen"


@dataclass(frozen=True)
class CronFinding:
    """A problem that keeps pg_cron from maintaining the queue.

    Attributes:
        kind: the kind of problem, for programs.
        job: the name of the job; None if the problem is not about a single job.
        text: the problem, for people.
        fix: the fix.
    """

    kind: CronFindingKind
    job: str | None
    text: str
    fix: str

    def __str__(self) -> str:
        return f"{self.text}: {self.fix}"


class CronUnavailable(PgrouseError):
    """The jobs of pg_cron cannot be reached from here; `finding` has the reason."""

    def __init__(self, finding: CronFinding) -> None:
        super().__init__(str(finding))
        self.finding = finding


@dataclass(frozen=True)
class CronJob:
    """A job as pg_cron should have it."""

    name: str
    schedule: str
    command: str
    database: str
    username: str


@dataclass(frozen=True)
class ScheduledJob(CronJob):
    """A job as pg_cron has it."""

    jobid: int
    active: bool


@dataclass(frozen=True)
class CronPlacement:
    """The databases and roles involved.

    Attributes:
        queue: the database of the queue.
        cron: the database in which pg_cron keeps its jobs; None without pg_cron.
        schema: that of the queue.
        job_user: the role of the jobs: the owner of the schema if that role can log in, else its role `cron`. None
            without a schema.
        user: the role of `conn`.
        superuser: whether that role is a superuser.
    """

    queue: str
    schema: str
    cron: str | None
    job_user: str | None
    user: str
    superuser: bool

    @property
    def is_same_database(self) -> bool:
        """Whether pg_cron keeps its jobs in the database of the queue."""
        return self.cron == self.queue


def install(conn: Connection) -> list[str]:
    """Bring the jobs of pg_cron into their intended state.

    Missing ones are scheduled, those that differ are fixed, and those that are off are switched on.

    A superuser also creates pg_cron's extension and the role of the jobs, if they are needed. Correct jobs are not
    changed. A job that is fixed gets a new number. If pg_cron keeps its jobs in another database, the open transaction
    of `conn` is committed: the role must be visible from that database.

    Returns:
        The names of the jobs that were scheduled or fixed.

    Raises:
        CronUnavailable: pg_cron is absent, or `conn` has no right to use it.
        SchemaMismatch: the database has no such schema.
    """
    with _changing(conn) as (place, cron), cron.transaction():
        if place.superuser:
            _prepare(conn, cron, place)
        _refuse_if_hidden(cron, place)
        wanted = _wanted(conn, place)
        for stray in _duplicates(cron, place, wanted):
            _unschedule(cron, stray)
        return [job.name for job in wanted if _schedule_as_wanted(cron, place, job)]


def remove_left_behind(conn: Connection) -> list[str]:
    """Unschedule the jobs of databases that were renamed or dropped: each of their runs fails.

    A superuser removes all of them, any other role its own.

    Returns:
        The names of the jobs.

    Raises:
        CronUnavailable, SchemaMismatch: as `install`.
    """
    with _changing(conn) as (place, cron), cron.transaction():
        _refuse_if_hidden(cron, place)
        left = _of_missing_databases(cron, place)
        for each in left:
            _unschedule(cron, each)
    return sorted({each.name for each in left})


def check(conn: Connection, *, silent_after_s: float = SILENT_AFTER_S) -> list[CronFinding]:
    """Check whether pg_cron maintains the queue; change nothing.

    Args:
        conn: a connection to the database of the queue.
        silent_after_s: how long ago the last run of `messages.tick` by pg_cron may be, in seconds.

    Returns:
        The problems that `conn` has the right to see; empty if there are none.

    Raises:
        SchemaMismatch: the database has no such schema.
    """
    with search_path.fixed_session(conn):
        return _check(conn, silent_after_s)


def _check(conn: Connection, silent_after_s: float) -> list[CronFinding]:
    place = _place(conn)
    try:
        with _cron(conn, place) as cron:
            _refuse_if_hidden(cron, place)
            wanted = _wanted(conn, place)
            findings = [finding for job in wanted for finding in _about(cron, job)]
            findings += [_duplicate(each) for each in _duplicates(cron, place, wanted)]
            findings += _about_server(cron)
            left = [_left_behind(each) for each in _of_missing_databases(cron, place)]
            return findings + _silence(conn, findings, silent_after_s) + left
    except CronUnavailable as unavailable:
        return [unavailable.finding]


def remove(conn: Connection) -> list[str]:
    """Unschedule the jobs. Their role stays, because other databases may use it.

    Returns:
        The names of the jobs that were there.

    Raises:
        CronUnavailable: pg_cron is absent, or `conn` has no right to use it.
        SchemaMismatch: the database has no such schema.
    """
    with _changing(conn) as (place, cron), conn.transaction(), cron.transaction():
        _refuse_if_hidden(cron, place)
        # A tick writes its marks one by one, in another order than they are deleted below: that could deadlock.
        conn.execute("SELECT messages.wait_mutex('tick')")
        removed = [each for job in _wanted(conn, place) for each in _scheduled(cron, job.name)]
        for each in removed:
            _unschedule(cron, each)
        # Otherwise a later installation would look silent since the last tick.
        conn.execute("DELETE FROM messages.tick_mark WHERE caller = 'cron'")
    return sorted({each.name for each in removed})


@contextmanager
def _changing(conn: Connection) -> Iterator[tuple[CronPlacement, Connection]]:
    """Yield which databases and roles are involved, and a connection on which this role may change the jobs."""
    with search_path.fixed_session(conn):
        place = _place(conn)
        _refuse_without_right(place)
        with _cron(conn, place) as cron:
            yield place, cron


def _place(conn: Connection) -> CronPlacement:
    query = """
        SELECT current_database()::text AS queue, %s AS schema, me.rolname::text AS user, me.rolsuper AS superuser,
               -- A role that may not read the settings can still see whether the extension is here.
               CASE WHEN pg_has_role('pg_read_all_settings', 'USAGE')
                    THEN (SELECT s.setting FROM pg_settings AS s WHERE s.name = 'cron.database_name')
                    ELSE (
                      SELECT current_database()::text FROM pg_extension AS e WHERE e.extname = 'pg_cron'
                    ) END AS cron,
               (SELECT CASE WHEN owner.rolcanlogin THEN owner.rolname::text ELSE 'messages_cron' END
                FROM pg_namespace AS n JOIN pg_roles AS owner ON owner.oid = n.nspowner
                WHERE n.nspname = 'messages') AS job_user
        FROM pg_roles AS me
        WHERE me.rolname = current_user
        """
    place = conn.cursor(row_factory=class_row(CronPlacement)).execute(query, [schema_of(conn).name]).fetchone()
    assert place is not None  # noqa: S101 - every session has a role
    if place.job_user is None:
        raise SchemaMismatch(f"the database {place.queue} has no schema `{place.schema}`: run `pgrouse migrate`")
    return place


def _refuse_without_right(place: CronPlacement) -> None:
    """Raise an error unless this role may schedule the jobs.

    Only superusers may do so for another role or another database.
    """
    if place.superuser or place.cron is None:
        return
    if not place.is_same_database:
        reason = f"pg_cron keeps its jobs in the database {place.cron}, and only a superuser may schedule from there"
        raise CronUnavailable(CronFinding(CronFindingKind.NOT_VISIBLE, None, reason, "connect as a superuser"))
    if place.user != place.job_user:
        reason = f"the jobs run as {place.job_user}, and {place.user} may not schedule for others"
        raise CronUnavailable(
            CronFinding(CronFindingKind.NOT_VISIBLE, None, reason, "connect as that role or as a superuser")
        )


@contextmanager
def _cron(conn: Connection, place: CronPlacement) -> Iterator[Connection]:
    """Yield a connection to the database in which pg_cron keeps its jobs."""
    if place.cron is None:
        text = (
            f"pg_cron is not loaded, or not in the database {place.queue}; "
            "the daemons do its work as long as one is alive"
        )
        fix = "set shared_preload_libraries = 'pg_cron' and cron.database_name, restart PostgreSQL, " + INSTALL
        raise CronUnavailable(CronFinding(CronFindingKind.ABSENT, None, text, fix))
    if place.is_same_database:
        with _own_jobs_visible(conn):
            yield conn
        return
    try:
        cron = psycopg.connect(conn.info.dsn, dbname=place.cron, password=conn.info.password or None, autocommit=True)
    except psycopg.OperationalError as error:
        text = f"pg_cron keeps its jobs in the database {place.cron}, which cannot be reached ({_line(error)})"
        fix = "create it, or let this role connect to it, or use one that may"
        raise CronUnavailable(CronFinding(CronFindingKind.NOT_VISIBLE, None, text, fix)) from error
    with session_settings.set_up(cron), _own_jobs_visible(cron):
        yield cron


@contextmanager
def _own_jobs_visible(cron: Connection) -> Iterator[None]:
    """Let pg_cron's policy show each role its own jobs.

    With row_security off, which pgrouse's sessions set, hiding the jobs of others would be an error.
    """
    changed = cron.execute(SHOW_OWN_JOBS, [cron.info.backend_pid], prepare=False).rowcount
    try:
        yield
    finally:
        if changed and not cron.closed and cron.info.transaction_status is not TransactionStatus.INERROR:
            cron.execute("SET row_security = off", prepare=False)


def _refuse_if_hidden(cron: Connection, place: CronPlacement) -> None:
    """Raise an error unless pg_cron's tables exist and can be read."""
    if not _scalar(cron, "SELECT count(*) FROM pg_extension AS e WHERE e.extname = 'pg_cron'"):
        text = f"pg_cron is loaded, but the database {place.cron} does not have its extension"
        raise CronUnavailable(CronFinding(CronFindingKind.ABSENT, None, text, INSTALL + " as a superuser"))
    if not _scalar(cron, "SELECT has_schema_privilege('cron', 'USAGE')"):
        text = f"{place.user} may not read the jobs of pg_cron in the database {place.cron}"
        fix = f"as a superuser there: GRANT USAGE ON SCHEMA cron TO {place.user}"
        raise CronUnavailable(CronFinding(CronFindingKind.NOT_VISIBLE, None, text, fix))


def _prepare(conn: Connection, cron: Connection, place: CronPlacement) -> None:
    """Create what only a superuser can: the extension, the role, its rights."""
    cron.execute("CREATE EXTENSION IF NOT EXISTS pg_cron")
    if place.job_user == schema_of(conn).role("cron"):
        with conn.transaction():
            conn.execute(script("cron/role.sql"))
    if not place.is_same_database:
        conn.commit()
    user = sql.Identifier(place.job_user or "")
    cron.execute(sql.SQL("GRANT USAGE ON SCHEMA cron TO {}").format(user))
    cron.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(sql.Identifier(place.cron or ""), user))


def _wanted(conn: Connection, place: CronPlacement) -> list[CronJob]:
    """Return the jobs as they should be."""
    rows = conn.cursor(row_factory=tuple_row).execute(script("cron/jobs.sql")).fetchall()
    user = place.job_user or ""
    jobs = [
        CronJob(f"{place.schema}.{name.rpartition('.')[2]}", schedule, command, place.queue, user)
        for name, schedule, command in rows
    ]
    return jobs if place.is_same_database else [_in_shared_database(job, place) for job in jobs]


def _in_shared_database(job: CronJob, place: CronPlacement) -> CronJob:
    """Return a job for a database that keeps the jobs of several queues.

    It has another name, and prunes in that database.
    """
    name = _name_in_shared_database(job.name, place.queue)
    if job.name == f"{place.schema}.{PRUNE}":
        job = replace(job, command=script("cron/prune_elsewhere.sql").decode(), database=place.cron or "")
    return replace(job, name=name)


def _name_in_shared_database(name: str, queue: str) -> str:
    whole = f"{name}@{queue}"
    if len(whole.encode()) <= LONGEST_NAME:
        return whole
    hashed = f"{name}@{hashlib.sha256(queue.encode()).hexdigest()[:16]}"
    if len(hashed.encode()) <= LONGEST_NAME:
        return hashed
    return f"{name.rpartition('.')[2]}@{hashlib.sha256(whole.encode()).hexdigest()[:32]}"


def _of_missing_databases(cron: Connection, place: CronPlacement) -> list[ScheduledJob]:
    """Return pgrouse's jobs of databases that do not exist.

    Jobs that prune run in the database of pg_cron, and only their name tells their database: those of this schema are
    found.
    """
    prune = f"{place.schema}.{PRUNE}"
    found = _jobs(cron, "starts_with(j.command, %s)", MARK)
    databases = cron.cursor(row_factory=scalar_row).execute("SELECT d.datname::text FROM pg_database AS d").fetchall()
    of_databases = {_name_in_shared_database(prune, each) for each in databases}
    return [
        each
        for each in found
        if each.database not in databases or (each.name.startswith(f"{prune}@") and each.name not in of_databases)
    ]


def _left_behind(job: ScheduledJob) -> CronFinding:
    text = f"the job {job.name} is for a database that does not exist: it was renamed or dropped"
    return CronFinding(
        CronFindingKind.DATABASE_MISSING, job.name, text, f"{INSTALL} as a superuser or as {job.username}"
    )


def _scheduled(cron: Connection, name: str) -> list[ScheduledJob]:
    """Return the jobs with this name: at most one for each role."""
    return _jobs(cron, "j.jobname = %s", name)


def _duplicates(cron: Connection, place: CronPlacement, wanted: list[CronJob]) -> list[ScheduledJob]:
    """Return the jobs that do the same for this queue under another name: they were renamed, or scheduled by hand."""
    names, commands = [job.name for job in wanted], [job.command for job in wanted]
    same = "j.database = %s AND j.command = ANY (%s) AND coalesce(j.jobname, '') <> ALL (%s)"
    return _jobs(cron, same, place.queue, commands, names)


def _jobs(cron: Connection, condition: LiteralString, *values: object) -> list[ScheduledJob]:
    """Return the jobs of pg_cron that fulfil a condition, the oldest first."""
    query = """
        SELECT j.jobid, coalesce(j.jobname::text, 'number ' || j.jobid) AS name,
               j.schedule, j.command, j.database, j.username, j.active
        FROM cron.job AS j
        WHERE """
    cursor = cron.cursor(row_factory=class_row(ScheduledJob))
    return cursor.execute(query + condition + " ORDER BY j.jobid", values).fetchall()


def _duplicate(job: ScheduledJob) -> CronFinding:
    return CronFinding(
        CronFindingKind.DUPLICATE, job.name, f"the job {job.name} does what another job does already", INSTALL
    )


def _schedule_as_wanted(cron: Connection, place: CronPlacement, wanted: CronJob) -> bool:
    """Schedule the job if needed, and remove jobs that differ; return whether anything was changed.

    It does not schedule over an existing job: pg_cron would leave an inactive job inactive, and pg_cron 1.4 would leave
    it in its database.
    """
    found = _scheduled(cron, wanted.name)
    wrong = [each for each in found if any(_differences(wanted, each))]
    for each in wrong:
        _unschedule(cron, each)
    missing = len(wrong) == len(found)
    if missing and place.superuser:
        cron.execute("SELECT cron.schedule_in_database(%s, %s, %s, %s, %s)", astuple(wanted))
    elif missing:
        cron.execute("SELECT cron.schedule(%s, %s, %s)", [wanted.name, wanted.schedule, wanted.command])
    return bool(wrong) or missing


def _unschedule(cron: Connection, job: ScheduledJob) -> None:
    cron.execute("SELECT cron.unschedule(%s::bigint)", [job.jobid])


def _about(cron: Connection, wanted: CronJob) -> Iterator[CronFinding]:
    """Yield the problems of one job."""
    found = _scheduled(cron, wanted.name)
    if not found:
        yield CronFinding(CronFindingKind.MISSING, wanted.name, f"pg_cron has no job {wanted.name}", INSTALL)
    for each in found:
        yield from _differences(wanted, each)
        yield from _failure(cron, each)


def _differences(wanted: CronJob, found: ScheduledJob) -> Iterator[CronFinding]:
    """Yield how a job differs from its intended state."""
    name = wanted.name
    if found.database != wanted.database:
        text = f"the job {name} runs in the database {found.database}, not in {wanted.database}"
        yield CronFinding(CronFindingKind.OTHER_DATABASE, name, text, INSTALL)
    if found.username != wanted.username:
        text = f"the job {name} runs as {found.username}, not as {wanted.username}"
        yield CronFinding(CronFindingKind.OTHER_USER, name, text, INSTALL)
    if found.schedule != wanted.schedule:
        text = f"the job {name} runs at `{found.schedule}`, not at `{wanted.schedule}`"
        yield CronFinding(CronFindingKind.OTHER_SCHEDULE, name, text, INSTALL)
    if found.command != wanted.command:
        yield CronFinding(
            CronFindingKind.OTHER_COMMAND, name, f"the job {name} runs another command: {found.command!r:.200}", INSTALL
        )
    if not found.active:
        yield CronFinding(CronFindingKind.INACTIVE, name, f"the job {name} is switched off", INSTALL)


def _failure(cron: Connection, job: ScheduledJob) -> Iterator[CronFinding]:
    """Yield a finding if the last run of the job failed."""
    query = """
        SELECT CASE WHEN d.status = 'failed' THEN coalesce(d.return_message, 'no reason given') END
        FROM cron.job_run_details AS d
        WHERE d.jobid = %s AND d.status IN ('succeeded', 'failed')
        ORDER BY d.runid DESC LIMIT 1
        """
    if reason := _scalar(cron, query, job.jobid):
        fix = "see cron.job_run_details and the server's log"
        if "connection failed" in reason:
            fix = (
                f"set cron.use_background_workers = on, or let {job.username} connect to {job.database} without a "
                "password"
            )
        yield CronFinding(
            CronFindingKind.LAST_RUN_FAILED, job.name, f"the last run of {job.name} failed ({_line(reason)})", fix
        )


def _about_server(cron: Connection) -> Iterator[CronFinding]:
    """Yield the reasons why pg_cron runs no job at all."""
    if _scalar(cron, "SELECT s.setting = 'off' FROM pg_settings AS s WHERE s.name = 'cron.launch_active_jobs'"):
        text = "pg_cron runs no job at all: cron.launch_active_jobs is off"
        yield CronFinding(CronFindingKind.SWITCHED_OFF, None, text, "switch it on and reload the configuration")
    version = _scalar(cron, "SELECT e.extversion FROM pg_extension AS e WHERE e.extname = 'pg_cron'")
    if tuple(int(number) for number in re.findall(r"\d+", version)[:2]) < OLDEST:
        text = f"pg_cron is of version {version}, and nothing older than 1.4 was ever tried"
        yield CronFinding(
            CronFindingKind.TOO_OLD,
            None,
            text,
            "install a newer one, restart PostgreSQL, ALTER EXTENSION pg_cron UPDATE",
        )
    query = """
        SELECT string_agg(DISTINCT quote_literal(j.username), ', ')
        FROM cron.job AS j WHERE NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = j.username)
        """
    if roles := _scalar(cron, query):
        text = f"there are jobs of roles that do not exist ({roles}), which can stop pg_cron for everybody"
        yield CronFinding(CronFindingKind.ROLE_MISSING, None, text, "delete their rows from cron.job as a superuser")


def _silence(conn: Connection, found: list[CronFinding], silent_after_s: float) -> list[CronFinding]:
    """Return a finding if pg_cron has been silent for too long, unless the findings about its jobs explain that."""
    if any(each.kind is not CronFindingKind.LAST_RUN_FAILED for each in found):
        return []
    silence = conn.cursor(row_factory=class_row(_Silence)).execute(_Silence.QUERY).fetchone()
    assert silence is not None  # noqa: S101 - an aggregate has one row
    if not silence.launcher:
        # Before 1.6.1 nothing restarts it, however it ended.
        fix = "if it does not come back within a minute, restart PostgreSQL"
        return [CronFinding(CronFindingKind.LAUNCHER_NOT_SEEN, None, "the launcher of pg_cron does not run", fix)]
    if silence.ticked and silence.seconds > silent_after_s:
        text = f"pg_cron has not run messages.tick for {silence.seconds:.0f} s"
        fix = "see the server's log; it may have too few max_worker_processes, or no right to connect"
        return [CronFinding(CronFindingKind.LAUNCHER_NOT_SEEN, None, text, fix)]
    return []


@dataclass(frozen=True)
class _Silence:
    """How long pg_cron has been silent while the server ran, whether it ever ticked, and whether its launcher runs."""

    seconds: float
    ticked: bool
    launcher: bool

    QUERY: ClassVar[LiteralString] = """
        SELECT extract(
          epoch FROM clock_timestamp() - greatest(max(k.ran_at), pg_postmaster_start_time())
        )::float8 AS seconds,
               max(k.ran_at) IS NOT NULL AS ticked,
               -- If this role may not see the launcher, assume that it runs.
               NOT pg_has_role('pg_read_all_stats', 'USAGE')
                 OR EXISTS (SELECT FROM pg_stat_activity AS a WHERE a.backend_type = 'pg_cron launcher') AS launcher
        FROM messages.tick_mark AS k WHERE k.caller = 'cron'
        """


def _scalar(conn: Connection, query: str, *parameters: object) -> Any:
    """Return the value of a query with one row and column; None without a row."""
    return conn.cursor(row_factory=scalar_row).execute(query.encode(), parameters or None).fetchone()


def _line(error: object) -> str:
    return " ".join(str(error).split())
