"""`pgrouse workflow`: messages that come after others."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, get_args

import click

from pgrouse.client.call import run
from pgrouse.client.calls import dead, operate
from pgrouse.client.calls.monitoring.state import Workflow
from pgrouse.client.calls.workflow import WorkflowMessage
from pgrouse.client.queries.clock import now
from pgrouse.client.redrive import RateSpreader
from pgrouse.client.workflow_graph import WorkflowWord, read_workflow, read_workflows
from pgrouse.errors import ExitCode
from pgrouse.terminal.bulk import DELAY, RATE, conclude, redrive_in_batches
from pgrouse.terminal.command import CliSession, CommandGroup
from pgrouse.terminal.param_types import MESSAGE_ID
from pgrouse.terminal.table import Column
from pgrouse.values.format import plural, show_ago

STYLES = {"held": "red", "failed": "red", "cancelled": "yellow", "finished": "green"}
MESSAGE_COLUMNS = [
    Column("ID", "id", right=True),
    Column("TOPIC", "topic", wide=True),
    Column("STATE", "state"),
    Column("HELD", "held", optional=True),
    Column("ATTEMPTS", "attempts", right=True),
    Column("AFTER", "comes_after", wide=True),
]


@click.group(cls=CommandGroup)
def workflow() -> None:
    """List, show, cancel and redrive workflows.

    A workflow is messages that come after others. Its id is that of its first message; ID may be any of its messages.
    """


@workflow.command("list")
@click.option("--state", type=click.Choice(get_args(WorkflowWord)), help="Only workflows in this state.")
@click.option("--before", type=MESSAGE_ID, metavar="ID", help="Only ids below this one: the next page.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="The maximum number.")
@click.pass_obj
def list_workflows(session: CliSession, state: WorkflowWord | None, before: int | None, limit: int) -> None:
    """List the workflows, the latest first."""
    with session.read() as conn:
        found, continues = read_workflows(conn, state, before, limit)
        clock = run(conn, now())
    columns = [
        Column("ID", "id", right=True),
        Column("TOPIC", "topic", wide=True),
        Column("STATE", "state", style=lambda word: STYLES.get(word, "")),
        Column("MESSAGES", "total", "{:,}".format, right=True),
        Column("LIVE", "live", "{:,}".format, right=True),
        Column("HELD", "held", "{:,}".format, right=True),
        Column("DEAD", "dead", "{:,}".format, right=True),
        Column("CANCELLED", "cancelled", "{:,}".format, right=True),
        Column("CREATED", "age"),
    ]
    rows = [asdict(each) if session.as_json else _listed(each, clock) for each in found]
    session.rows(columns, rows, "no workflow: publish a message with `--after`")
    if continues is not None:
        session.note(f"older ones were not looked at: go on with --before {continues}")


@workflow.command()
@click.argument("message_id", type=MESSAGE_ID, metavar="ID")
@click.pass_obj
def show(session: CliSession, message_id: int) -> int:
    """Show the messages of a workflow, and what became of them."""
    with session.read() as conn:
        graph, clock = read_workflow(conn, message_id), run(conn, now())
    if graph is None:
        return _unknown(session, message_id)
    if session.as_json:
        session.record(asdict(graph.workflow) | {"messages": [asdict(each) for each in graph.messages]})
        return ExitCode.OK
    _print(session, graph.workflow, clock)
    session.rows(MESSAGE_COLUMNS, [_shown(each) for each in graph.messages], "")
    return ExitCode.OK


@workflow.command()
@click.argument("message_id", type=MESSAGE_ID, metavar="ID")
@click.option("--reason", metavar="TEXT", help="The reason, stored as the error of its messages.")
@click.pass_obj
def cancel(session: CliSession, message_id: int, reason: str | None) -> int:
    """Cancel the messages of a workflow that have not ended."""
    with session.connect() as conn:
        graph = read_workflow(conn, message_id)
        if graph is None:
            return _unknown(session, message_id)
        done = len(run(conn, operate.cancel(graph.live_ids(), reason)))
    found = graph.workflow.id
    session.done(f"cancelled {plural(done, 'message')} of workflow {found}", id=found, cancelled=done)
    return ExitCode.OK


@workflow.command()
@click.argument("message_id", type=MESSAGE_ID, metavar="ID")
@RATE
@DELAY
@click.option("--force", is_flag=True, help="Also messages that were redriven max_redrives times already.")
@click.pass_obj
def redrive(session: CliSession, message_id: int, rate: float | None, delay: timedelta, force: bool) -> int:
    """Put the dead messages of a workflow back.

    The messages that they hold go on when they have succeeded.
    """
    with session.connect() as conn:
        graph = read_workflow(conn, message_id)
        if graph is None:
            return _unknown(session, message_id)
        rows = redrive_in_batches(conn, dead.redrive, [graph.dead_ids()], RateSpreader(rate, delay), force=force)
        none = f"workflow {graph.workflow.id} has no dead message"
        return conclude(session, rows, "archived_id", "redrove {}", none, by_id=False)


def _unknown(session: CliSession, message_id: int) -> ExitCode:
    session.problem(f"message {message_id} is in no workflow: see `pgrouse workflow list`")
    return ExitCode.FOUND_A_PROBLEM


def _listed(found: Workflow, clock: datetime) -> dict[str, Any]:
    return asdict(found) | {"age": found.created_at and show_ago(clock - found.created_at)}


def _shown(each: WorkflowMessage) -> dict[str, Any]:
    held, after = "held" if each.is_held else None, ", ".join(map(str, each.after)) or None
    return asdict(each) | {"held": held, "comes_after": after}


def _print(session: CliSession, found: Workflow, clock: datetime) -> None:
    session.say(f"workflow {found.id}  {found.state}")
    ended, older = found.total - found.live, "" if found.is_whole else ", and older ones"
    facts = {
        "messages": f"{found.total:,}: {ended:,} ended, {found.live:,} live{older}",
        "ended": f"{found.dead:,} dead, {found.cancelled:,} cancelled",
        "held": f"{found.held:,}" if found.held else None,
        "created": found.created_at and show_ago(clock - found.created_at),
        "last ended": found.last_ended_at and show_ago(clock - found.last_ended_at),
    }
    for label, value in facts.items():
        if value is not None:
            session.say(f"  {label:<12}{value}")
