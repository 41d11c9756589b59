"""`pgrouse worker`: list and drain workers."""

from __future__ import annotations

import click
from psycopg.rows import dict_row

from pgrouse.cli.command import CliSession, CommandGroup
from pgrouse.cli.output import Column
from pgrouse.client.calls.worker import drain_worker
from pgrouse.errors import ExitCode
from pgrouse.format import show_age, show_ago

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


@click.group(cls=CommandGroup)
def worker() -> None:
    """List the workers, and drain them."""


@worker.command("list")
@click.pass_obj
def list_workers(session: CliSession) -> None:
    """List the workers of the last hour. One that is silent for 30 seconds is dead, frozen, or disconnected."""
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
def drain(session: CliSession, name: str) -> int:
    """Ask a worker to finish its running messages and stop, as on SIGTERM.

    It reacts within seconds. A service manager may start it again.
    """
    is_known = session.run(drain_worker(name))
    if session.as_json:
        session.output.record({"name": name, "draining": is_known})
    if not is_known:
        session.output.problem(f"there is no worker {name}: see `pgrouse worker list`")
        return ExitCode.FOUND_A_PROBLEM
    session.output.say(f"asked {name} to drain")
    return ExitCode.OK
