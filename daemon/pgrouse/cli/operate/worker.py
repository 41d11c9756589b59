"""`pgrouse worker`: list, scale and drain workers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click
from pydantic_core import from_json

from pgrouse.client.call import run
from pgrouse.client.calls.processing.worker import drain_worker, scale_worker
from pgrouse.client.queries.worker import RegisteredWorker, find_workers
from pgrouse.terminal.command import CliSession, CommandGroup
from pgrouse.terminal.table import Column
from pgrouse.values.format import plural, show_age, show_ago
from pgrouse.values.jsonb import Raw

MOST = 10_000

UNKNOWN = "there is no worker {}: see `pgrouse worker list`"


@click.group(cls=CommandGroup)
def worker() -> None:
    """List the workers, scale and drain them."""


@worker.command("list")
@click.pass_obj
def list_workers(session: CliSession) -> None:
    """List the workers of the last hour. One that is silent for 30 seconds is dead, frozen, or disconnected."""
    with session.read() as conn:
        found = run(conn, find_workers(MOST))
    rows = [_row(each) for each in found]
    columns = [
        Column("NAME", "name", wide=True),
        Column(
            "STATE",
            "state",
            style=lambda state: {"working": "green", "draining": "yellow", "stopping": "yellow", "gone": "dim"}.get(
                state, "red"
            ),
        ),
        Column("SEEN", "age", show_ago),
        Column("UP", "up", show_age, right=True),
        Column("HOST", "host", wide=True),
        Column("PID", "pid", right=True),
        Column("SLOTS", "concurrency", right=True),
        Column("TOPICS", "topics", ", ".join, wide=True),
    ]
    if any(each.topic_limits for each in found):
        columns.append(Column("LIMITS", "topic_limits", _show_limits, wide=True))
    session.rows(columns, rows, "no worker: start one with `pgrouse run`")


def _show_limits(limits: Raw) -> str:
    return ", ".join(f"{topic} {most}" for topic, most in from_json(limits.text).items())


def _row(found: RegisteredWorker) -> dict[str, Any]:
    row = asdict(found)
    return row | {name: Raw(row.pop(f"{name}_json")) for name in ("status", "topic_limits")}


@worker.command()
@click.argument("name")
@click.pass_obj
def drain(session: CliSession, name: str) -> int:
    """Ask a worker to finish its running messages and stop, as on SIGTERM.

    It reacts within seconds. A service manager may start it again.
    """
    is_known = session.run(drain_worker(name))
    return session.result(is_known, f"asked {name} to drain", UNKNOWN.format(name), name=name, draining=is_known)


@worker.command()
@click.argument("name")
@click.argument("concurrency", type=click.IntRange(1, 10_000), required=False)
@click.option("--topic", metavar="TOPIC", help="Messages of this topic, which has worker_concurrency.")
@click.pass_obj
def scale(session: CliSession, name: str, concurrency: int | None, topic: str | None) -> int:
    """Change how many handlers a worker runs at once, until it restarts.

    Without a number, it runs as many as it is configured for. It reacts within seconds; handlers that run are not
    stopped.
    """
    is_known = session.run(scale_worker(name, concurrency, topic))
    if topic:
        how = f"{plural(concurrency, 'message')} of {topic} at once" if concurrency else f"{topic} as its policy says"
    else:
        how = plural(concurrency, "handler") + " at once" if concurrency else "as many handlers as it is configured for"
    facts = {"name": name, "topic": topic, "concurrency": concurrency, "scaled": is_known}
    return session.result(is_known, f"asked {name} to run {how}", UNKNOWN.format(name), **facts)
