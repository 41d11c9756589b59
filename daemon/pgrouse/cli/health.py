"""`pgrouse health`: for containers and probes."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import click

from pgrouse.cli.command import Command, Session
from pgrouse.cli.output import show_age
from pgrouse.errors import ExitCode

if TYPE_CHECKING:
    import psycopg

SEEN_WITHIN_S = 30
LAST_SEEN = """
  SELECT w.name, extract(epoch FROM clock_timestamp() - w.seen_at)::double precision
  FROM messages.worker AS w
  WHERE CASE WHEN %(name)s::text IS NULL THEN w.host = %(host)s ELSE w.name = %(name)s END
  ORDER BY w.seen_at DESC LIMIT 1"""


@click.command(cls=Command)
@click.option("--worker", "name", help="The worker to look for. Default: any that runs on this host.")
@click.option("--no-worker", is_flag=True, help="Look for no worker.")
@click.pass_obj
def health(session: Session, name: str | None, no_worker: bool) -> int:
    """Check the database, the schema and the worker of this host.

    All is well, and the exit code 0, if the database answers, its schema fits this version, and the worker was seen within 30 seconds.
    """
    from pgrouse import schema  # noqa: PLC0415

    with session.connect() as conn:
        session.output.say(f"ok    database  PostgreSQL {_version(conn)}")
        schema.check(conn)
        session.output.say("ok    schema    fits this version")
        problem = None if no_worker else _problem_of_worker(session, conn, name)
    if session.as_json:
        session.output.record({"ok": problem is None, "problem": problem})
    elif problem:
        session.output.say(f"fail  worker    {problem}")
    return ExitCode.FOUND_A_PROBLEM if problem else ExitCode.OK


def _version(conn: psycopg.Connection) -> str:
    return conn.info.parameter_status("server_version") or "of an unknown version"


def _problem_of_worker(session: Session, conn: psycopg.Connection, name: str | None) -> str | None:
    """Return what is wrong with the worker, None if it lives."""
    row: Any = conn.execute(LAST_SEEN, {"name": name, "host": socket.gethostname()}).fetchone()
    who = f"worker {name}" if name else f"a worker on host {socket.gethostname()}"
    if row is None:
        return f"there is no {who}: start one with `pgrouse run`".replace("no a ", "no ")
    if row[1] > SEEN_WITHIN_S:
        return f"{row[0]} was last seen {show_age(row[1])} ago: see its log"
    session.output.say(f"ok    worker    {row[0]}, seen {show_age(row[1])} ago")
    return None
