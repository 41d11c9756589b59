"""`pgrouse stats`: how many messages are in the queue."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import click
import psycopg

from pgrouse.client.call import run
from pgrouse.client.calls.export import ExportStatus, list_exports
from pgrouse.client.calls.monitoring import stats as stats_calls
from pgrouse.client.calls.monitoring.alert import OpenCondition, open_conditions
from pgrouse.client.queries.clock import tick_ages
from pgrouse.terminal.command import READ_TIMEOUT, CliSession, Command
from pgrouse.terminal.extras import has_rich
from pgrouse.terminal.param_types import DURATION
from pgrouse.terminal.table import Column, plain_table
from pgrouse.values.format import show_age, show_estimate

# How many problems stand above the numbers.
MAX_PROBLEMS = 3


@dataclass(frozen=True)
class Stats:
    """The numbers of messages in the queue.

    Attributes:
        topics: one row per topic.
        problems: what is wrong, the worst first.
        maintenance: for each caller of the maintenance functions how many seconds ago it last did.
        held: the exports for which the retention waits.
    """

    topics: list[dict[str, Any]]
    problems: list[OpenCondition]
    maintenance: dict[str, float]
    held: list[ExportStatus]


@click.command(cls=Command)
@click.option("--watch", is_flag=True, help="Repeat until interrupted.")
@click.option("--interval", type=DURATION, default="2s", show_default=True, help="How often, with --watch.")
@click.pass_obj
def stats(session: CliSession, watch: bool, interval: timedelta) -> None:
    """Show how many messages are in the queue, by topic.

    Blocked, retrying and waiting messages are counted as delayed: they are due later, too. From 1,000 on, the ready and
    delayed messages of a topic are estimated (shown as ≈ 52,000): nothing here reads a big table to its end.
    """
    with session.connect() as conn:
        if not watch:
            _print(session, _read(conn))
        elif session.on_terminal and has_rich():
            _watch_on_terminal(conn, interval)
        else:
            _watch_in_pipe(session, conn, interval)


def _read(conn: psycopg.Connection) -> Stats:
    with conn.transaction():
        conn.execute(READ_TIMEOUT)
        topics = [asdict(each) for each in run(conn, stats_calls.stats())]
        held = [each for each in run(conn, list_exports()) if each.held_since is not None]
        return Stats(topics, run(conn, open_conditions()), run(conn, tick_ages()), held)


def _columns() -> list[Column]:
    return [
        Column("TOPIC", "topic", wide=True),
        Column("READY", "ready", _waiting, right=True),
        Column("RUNNING", "running", "{:,}".format, right=True),
        Column("DELAYED", "delayed", _waiting, right=True),
        Column("DEAD 24H", "dead_last_day", "{:,}".format, right=True, style=lambda dead: "red" if dead else ""),
        Column("OLDEST", "oldest_ready_s", show_age, right=True),
        Column(
            "HANDLED",
            "handled",
            lambda handled: "yes" if handled else "no",
            style=lambda handled: "" if handled else "yellow",
        ),
    ]


def _waiting(count: int) -> str:
    return show_estimate(count, is_estimate=count >= stats_calls.COUNT_BOUND)


def _print(session: CliSession, found: Stats) -> None:
    if session.as_json:
        session.record(
            {
                "topics": found.topics,
                "exact_below": stats_calls.COUNT_BOUND,
                "problems": [asdict(each) for each in found.problems],
                "maintenance_age_s": found.maintenance,
                "list_exports": [asdict(each) for each in found.held],
            }
        )
        return
    for line in _problems(found):
        session.note(line)
    session.rows(_columns(), found.topics, "no message waits or runs: publish one")
    for line in _remarks(found):
        session.note(line)


def _problems(found: Stats) -> list[str]:
    """Return what stands above the numbers: what pages somebody."""
    urgent = [each.what for each in found.problems if each.severity == "page"]
    more = f"and {len(urgent) - MAX_PROBLEMS} more problems: `pgrouse alert conditions` lists them"
    return [*urgent[:MAX_PROBLEMS], *([more] if len(urgent) > MAX_PROBLEMS else [])]


def _remarks(found: Stats) -> list[str]:
    """Return what to know in addition to the numbers."""
    unhandled = [row["topic"] for row in found.topics if not row["handled"] and (row["ready"] or row["delayed"])]
    if any(each.kind == "workers_down" for each in found.problems) and not any(row["handled"] for row in found.topics):
        # That no worker is alive is said above.
        unhandled = []
    remarks = (
        [
            f"no worker handles {', '.join(unhandled[:3])}{' …' if unhandled[3:] else ''}: "
            "messages published there wait, nothing is lost"
        ]
        if unhandled
        else []
    )
    said = ", ".join(f"by {caller} {show_age(age)} ago" for caller, age in found.maintenance.items())
    if len(found.topics) >= stats_calls.TOPIC_LIMIT:
        remarks.append(
            f"there are more topics than {stats_calls.TOPIC_LIMIT:,}: these matter most; "
            "`pgrouse doctor` says what to do"
        )
    return [
        *remarks,
        *map(_held, found.held),
        f"maintenance: {said}" if said else "maintenance never ran: start a daemon, or `pgrouse cron install`",
    ]


def _held(export: ExportStatus) -> str:
    return (
        f"retention waits for export {export.name} since {export.held_since:%Y-%m-%d %H:%M}: "
        f"run `pgrouse pipeline export {export.lake} --name {export.name}`, or give it up with --forget {export.name}"
    )


def _watch_in_pipe(session: CliSession, conn: psycopg.Connection, interval: timedelta) -> None:
    while True:
        found = _read(conn)
        if session.as_json:
            _print(session, found)
        else:
            for line in _problems(found):
                session.note(line)
            session.say(plain_table(_columns(), found.topics) + "\n")
        time.sleep(interval.total_seconds())


def _watch_on_terminal(conn: psycopg.Connection, interval: timedelta) -> None:
    from pgrouse.terminal.rich_table import WatchTable  # noqa: PLC0415 - slow to import: only terminals need rich

    with WatchTable(_columns()) as table:
        while True:
            found = _read(conn)
            table.show(found.topics, _remarks(found), _problems(found))
            time.sleep(interval.total_seconds())
