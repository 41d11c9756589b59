"""`pgrouse health`: for containers and probes."""

from __future__ import annotations

import socket
from dataclasses import asdict, dataclass

import click
import psycopg

from pgrouse.client.call import run
from pgrouse.client.calls.export import list_exports
from pgrouse.client.queries.clock import tick_ages
from pgrouse.client.queries.worker import find_worker, latest_daemon
from pgrouse.database.install import schema
from pgrouse.errors import ExitCode
from pgrouse.terminal.command import READ_TIMEOUT, CliSession, Command
from pgrouse.values.format import show_age

# pg_cron ticks each minute, daemons every few seconds.
TICKED_WITHIN_S = 180


@dataclass(frozen=True)
class HealthResult:
    """The result of one check.

    Attributes:
        level: ok, warn (it works, but needs attention) or fail.
    """

    name: str
    level: str
    detail: str


@click.command(cls=Command)
@click.option(
    "--worker",
    "name",
    metavar="NAME",
    help="The worker to look for, on whatever host it runs. Default: any that runs on this host.",
)
@click.option("--no-worker", is_flag=True, help="Do not look for a worker.")
@click.option(
    "--complete",
    is_flag=True,
    help="Check also its listener, the maintenance (it must have run within 3 minutes) and the retention (exports "
    "may delay it).",
)
@click.pass_obj
def health(session: CliSession, name: str | None, no_worker: bool, complete: bool) -> int:
    """Check the database, the schema and the worker of this host.

    The exit code is 0 if the database answers, its schema fits this version, and the worker was seen within 30 seconds.
    """
    with session.connect() as conn:
        checks = [HealthResult("database", "ok", f"PostgreSQL {_version(conn)}")]
        schema.check(conn)
        checks.append(HealthResult("schema", "ok", "fits this version"))
        with conn.transaction():
            conn.execute(READ_TIMEOUT)
            checks += [] if no_worker else _of_worker(conn, name, complete)
            checks += [*_of_maintenance(conn), *_of_retention(conn)] if complete else []
    problem = next((check.detail for check in checks if check.level == "fail"), None)
    session.record({"ok": problem is None, "problem": problem, "checks": [asdict(each) for each in checks]})
    width = max(len(check.name) for check in checks)
    for check in checks:
        session.say(f"{check.level:4}  {check.name:{width}}  {check.detail}")
    return ExitCode.FOUND_A_PROBLEM if problem else ExitCode.OK


def _version(conn: psycopg.Connection) -> str:
    return conn.info.parameter_status("server_version") or "of an unknown version"


def _of_worker(conn: psycopg.Connection, name: str | None, complete: bool) -> list[HealthResult]:
    """Check whether the worker is alive, and with --complete whether it receives notifications."""
    found = run(conn, latest_daemon(socket.gethostname()) if name is None else find_worker(name))
    if found is None:
        who = f"worker {name}" if name else f"worker on host {socket.gethostname()}"
        return [HealthResult("worker", "fail", f"there is no {who}: start one with `pgrouse run`")]
    if not found.alive:
        return [HealthResult("worker", "fail", f"{found.name} was last seen {show_age(found.age)} ago: see its log")]
    seen = HealthResult("worker", "ok", f"{found.name}, seen {show_age(found.age)} ago")
    if not complete:
        return [seen]
    listener = found.status.get("listener")
    if listener == "listening":
        return [seen, HealthResult("listener", "ok", "notifications arrive")]
    fix = "is database.listen_dsn a direct connection? `pgrouse doctor` says more"
    return [
        seen,
        HealthResult(
            "listener", "fail", f"{found.name} receives no notifications ({listener or 'it does not say'}): {fix}"
        ),
    ]


def _of_maintenance(conn: psycopg.Connection) -> list[HealthResult]:
    """Check whether the maintenance runs, and whether pg_cron still runs it if it ever did."""
    ages = dict(sorted(run(conn, tick_ages()).items(), key=lambda each: each[1]))
    youngest = min(ages.values(), default=None)
    if youngest is None or youngest > TICKED_WITHIN_S:
        when = "never ran" if youngest is None else f"ran {show_age(youngest)} ago"
        return [HealthResult("maintenance", "fail", f"{when}: start a daemon, or `pgrouse cron install`")]
    if ages.get("cron", 0) > TICKED_WITHIN_S:
        return [
            HealthResult(
                "maintenance", "warn", f"pg_cron last ran {show_age(ages['cron'])} ago: see `pgrouse cron check`"
            )
        ]
    return [
        HealthResult("maintenance", "ok", ", ".join(f"by {caller} {show_age(age)} ago" for caller, age in ages.items()))
    ]


def _of_retention(conn: psycopg.Connection) -> list[HealthResult]:
    """Check which exports keep days of the archive from being dropped."""
    held = [each for each in run(conn, list_exports()) if each.held_since is not None]
    if not held:
        return [HealthResult("retention", "ok", "held by no export")]
    return [
        HealthResult(
            "retention",
            "warn",
            f"held by export {each.name} since {each.held_since:%Y-%m-%d %H:%M}: "
            f"run `pgrouse pipeline export {each.lake} --name {each.name}`, or give it up with --forget {each.name}",
        )
        for each in held
    ]
