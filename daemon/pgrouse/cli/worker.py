"""`pgrouse worker`: who works."""

from __future__ import annotations

from typing import Any

import click

from pgrouse.cli.command import Group, Session
from pgrouse.cli.output import Column, show_age, show_ago
from pgrouse.errors import ExitCode

LIST = """
  SELECT w.name, w.host, w.pid, w.version, w.topics, w.concurrency, w.started_at, w.seen_at, w.status, w.kind,
         CASE
           WHEN w.seen_at < clock_timestamp() - CASE w.kind WHEN 'http' THEN interval '2 minutes' ELSE interval '30 s' END THEN 'silent'
           WHEN w.stopping THEN 'stopping'
           WHEN w.drain_asked_at IS NOT NULL THEN 'draining'
           ELSE 'working'
         END AS state,
         clock_timestamp() - w.started_at AS up, clock_timestamp() - w.seen_at AS age
  FROM messages.worker AS w
  ORDER BY w.name"""


@click.group(cls=Group)
def worker() -> None:
    """List the workers, and ask one to drain."""


@worker.command("list")
@click.pass_obj
def list_workers(session: Session) -> None:
    """List the workers of the last hour. One that is silent for 30 seconds is dead, frozen, or cut off."""
    from psycopg.rows import dict_row  # noqa: PLC0415

    with session.read() as conn:
        rows = conn.cursor(row_factory=dict_row).execute(LIST).fetchall()
    columns = [
        Column("NAME", "name", wide=True),
        Column(
            "STATE",
            "state",
            style=lambda state: {"working": "green", "draining": "yellow", "stopping": "yellow"}.get(state, "red"),
        ),
        Column("SEEN", "age", show_ago),
        Column("UP", "up", show_age, right=True),
        Column("HOST", "host", wide=True),
        Column("PID", "pid", right=True),
        Column("SLOTS", "concurrency", right=True),
        Column("TOPICS", "topics", ", ".join, wide=True),
    ]
    session.output.rows(columns, rows, "no worker: start one with `pgrouse run`")


@worker.command()
@click.argument("name")
@click.pass_obj
def drain(session: Session, name: str) -> int:
    """Ask a worker to let what runs end, and to stop, as on SIGTERM.

    It obeys within seconds. Whoever started it, a service manager say, may start it again.
    """
    with session.connect() as conn:
        row: Any = conn.execute("SELECT messages.drain_worker(%s)", [name]).fetchone()
    if session.as_json:
        session.output.record({"name": name, "draining": row[0]})
    if not row[0]:
        session.output.problem(f"there is no worker {name}: see `pgrouse worker list`")
        return ExitCode.FOUND_A_PROBLEM
    session.output.say(f"asked {name} to drain")
    return ExitCode.OK
