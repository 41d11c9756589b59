"""`pgrouse health`: for containers and probes."""

from __future__ import annotations

import socket
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from pgrouse.cli.command import READ_TIMEOUT, Command, Session
from pgrouse.cli.output import show_age
from pgrouse.errors import ExitCode

if TYPE_CHECKING:
    import psycopg

SEEN_WITHIN_S = 30
# pg_cron ticks each minute, daemons every few seconds.
TICKED_WITHIN_S = 180
LAST_SEEN = """
  SELECT w.name, extract(epoch FROM clock_timestamp() - w.seen_at)::double precision, w.status ->> 'listener'
  FROM messages.worker AS w
  WHERE CASE WHEN %(name)s::text IS NULL THEN w.host = %(host)s AND w.kind = 'daemon' ELSE w.name = %(name)s END
  ORDER BY w.seen_at DESC LIMIT 1"""
TICKED = """
  SELECT k.caller, extract(epoch FROM clock_timestamp() - max(k.ran_at))::double precision FROM messages.tick_mark AS k
  GROUP BY k.caller ORDER BY max(k.ran_at) DESC"""
HELD = "SELECT h.name, h.lake, h.held_since FROM messages.held_by_export() AS h WHERE h.held_since IS NOT NULL ORDER BY h.name"


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes:
        level: ok, warn (it works, and somebody should look) or fail.
    """

    name: str
    level: str
    said: str


@click.command(cls=Command)
@click.option("--worker", "name", help="The worker to look for. Default: any that runs on this host.")
@click.option("--no-worker", is_flag=True, help="Look for no worker.")
@click.option("--complete", is_flag=True, help="Look at its listener, the maintenance and the retention too.")
@click.pass_obj
def health(session: Session, name: str | None, no_worker: bool, complete: bool) -> int:
    """Check the database, the schema and the worker of this host.

    All is well, and the exit code 0, if the database answers, its schema fits this version, and the worker was seen within 30 seconds.
    """
    from pgrouse.install import schema  # noqa: PLC0415

    with session.connect() as conn:
        checks = [Check("database", "ok", f"PostgreSQL {_version(conn)}")]
        schema.check(conn)
        checks.append(Check("schema", "ok", "fits this version"))
        with conn.transaction():
            conn.execute(READ_TIMEOUT)
            checks += [] if no_worker else _of_worker(conn, name, complete)
            checks += [*_of_maintenance(conn), *_of_retention(conn)] if complete else []
    problem = next((check.said for check in checks if check.level == "fail"), None)
    if session.as_json:
        session.output.record({"ok": problem is None, "problem": problem, "checks": [asdict(each) for each in checks]})
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            session.output.say(f"{check.level:4}  {check.name:{width}}  {check.said}")
    return ExitCode.FOUND_A_PROBLEM if problem else ExitCode.OK


def _version(conn: psycopg.Connection) -> str:
    return conn.info.parameter_status("server_version") or "of an unknown version"


def _of_worker(conn: psycopg.Connection, name: str | None, complete: bool) -> list[Check]:
    """Return whether the worker lives, and if that is asked for whether it hears."""
    row: Any = conn.execute(LAST_SEEN, {"name": name, "host": socket.gethostname()}).fetchone()
    if row is None:
        who = f"worker {name}" if name else f"worker on host {socket.gethostname()}"
        return [Check("worker", "fail", f"there is no {who}: start one with `pgrouse run`")]
    found, silent_s, listener = row
    if silent_s > SEEN_WITHIN_S:
        return [Check("worker", "fail", f"{found} was last seen {show_age(silent_s)} ago: see its log")]
    seen = Check("worker", "ok", f"{found}, seen {show_age(silent_s)} ago")
    if not complete:
        return [seen]
    if listener == "listening":
        return [seen, Check("listener", "ok", "notifications arrive")]
    mend = "is database.listen_dsn a direct connection? `pgrouse doctor` says more"
    return [
        seen,
        Check("listener", "fail", f"{found} hears no notifications ({listener or 'it does not say'}): {mend}"),
    ]


def _of_maintenance(conn: psycopg.Connection) -> list[Check]:
    """Return whether anybody ticks, and whether pg_cron still does if it ever did."""
    ages: dict[str, float] = dict(conn.execute(TICKED).fetchall())
    youngest = min(ages.values(), default=None)
    if youngest is None or youngest > TICKED_WITHIN_S:
        when = "never ran" if youngest is None else f"ran {show_age(youngest)} ago"
        return [Check("maintenance", "fail", f"{when}: start a daemon, or `pgrouse cron install`")]
    if ages.get("cron", 0) > TICKED_WITHIN_S:
        return [
            Check("maintenance", "warn", f"pg_cron last ran {show_age(ages['cron'])} ago: see `pgrouse cron check`")
        ]
    return [Check("maintenance", "ok", ", ".join(f"by {caller} {show_age(age)} ago" for caller, age in ages.items()))]


def _of_retention(conn: psycopg.Connection) -> list[Check]:
    """Return which exports keep days of the archive from being dropped."""
    held = conn.execute(HELD).fetchall()
    if not held:
        return [Check("retention", "ok", "held by no export")]
    return [
        Check(
            "retention",
            "warn",
            f"held by export {name} since {since:%Y-%m-%d %H:%M}: run `pgrouse pipeline export {lake} --name {name}`, "
            f"or give it up with --forget {name}",
        )
        for name, lake, since in held
    ]
