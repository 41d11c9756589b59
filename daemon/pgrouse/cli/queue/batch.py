"""`pgrouse batch`: messages that are counted together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import click
import psycopg

from pgrouse.client.call import run
from pgrouse.client.calls import batch as calls
from pgrouse.client.calls.batch import BatchProgress, BatchState
from pgrouse.client.calls.dead import Redriven
from pgrouse.client.queries.batch import BatchWord, find_batches
from pgrouse.client.queries.clock import now
from pgrouse.client.redrive import RateSpreader
from pgrouse.errors import ExitCode
from pgrouse.terminal.bulk import DELAY, RATE, conclude
from pgrouse.terminal.command import CliSession, CommandGroup
from pgrouse.terminal.param_types import MESSAGE_ID
from pgrouse.terminal.table import Column
from pgrouse.values.format import plural, show_ago
from pgrouse.values.jsonb import Raw, encode

PAGE = 1000
STYLES = {"finished": "green", "cancelled": "yellow"}


@click.group(cls=CommandGroup)
def batch() -> None:
    """Create, close, list, cancel and redrive batches.

    The messages of a batch are counted together.
    """


@batch.command()
@click.option("--name", help="What to call it.")
@click.option(
    "--on-finish", metavar="TOPIC", help="Publish a message there when it is closed and all its messages have ended."
)
@click.option("--on-failure", metavar="TOPIC", help="Publish a message there when the first of its messages dies.")
@click.option("--on-success", metavar="TOPIC", help="Publish a message there when all its messages have succeeded.")
@click.option("--metadata", metavar="JSON", help="An object that those messages and the batch show.")
@click.pass_obj
def create(session: CliSession, /, metadata: str | None, **given: str | None) -> None:
    """Create a batch and print its id, for `pgrouse publish --batch`."""
    shown = None if metadata is None else encode(Raw(metadata), "metadata")
    batch_id = session.run(calls.create_batch(**given, metadata=shown))
    session.done(str(batch_id), id=batch_id)


@batch.command()
@click.argument("batch_id", type=MESSAGE_ID, metavar="ID")
@click.pass_obj
def close(session: CliSession, batch_id: int) -> None:
    """Close a batch: it is finished when all its messages have ended."""
    was_open = session.run(calls.close_batch(batch_id))
    said = f"batch {batch_id} is closed" if was_open else f"batch {batch_id} was closed already"
    session.done(said, id=batch_id, was_open=was_open)


@batch.command("list")
@click.option(
    "--state", type=click.Choice(("open", "closed", "cancelled", "finished")), help="Only batches in this state."
)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="The maximum number.")
@click.pass_obj
def list_batches(session: CliSession, state: BatchWord | None, limit: int) -> None:
    """List the batches, the newest first."""
    with session.connect() as conn:
        found, clock = run(conn, find_batches(state, most=limit)), run(conn, now())
    columns = [
        Column("ID", "id", right=True),
        Column("NAME", "name", wide=True, optional=True),
        Column("STATE", "state", style=lambda word: STYLES.get(word, "")),
        Column("MESSAGES", "total", "{:,}".format, right=True),
        Column("LIVE", "live", "{:,}".format, right=True),
        Column("SUCCEEDED", "succeeded", "{:,}".format, right=True),
        Column("DEAD", "dead", "{:,}".format, right=True),
        Column("CANCELLED", "cancelled", "{:,}".format, right=True),
        Column("CREATED", "age"),
        Column("END", "end"),
    ]
    rows = [_as_json(each) if session.as_json else _listed(each, clock) for each in found]
    session.rows(columns, rows, "no batch: create one with `pgrouse batch create`")


@batch.command()
@click.argument("batch_id", type=MESSAGE_ID, metavar="ID")
@click.pass_obj
def show(session: CliSession, batch_id: int) -> int:
    """Show the counts of a batch, its end, and what it has published."""
    with session.connect() as conn:
        found, clock = run(conn, calls.batch_progress(batch_id)), run(conn, now())
    if found is None:
        session.problem(f"there is no batch {batch_id}: see `pgrouse batch list`")
        return ExitCode.FOUND_A_PROBLEM
    if session.as_json:
        session.record(_as_json(found))
    else:
        _print(session, found, clock)
    return ExitCode.OK


@batch.command()
@click.argument("batch_id", type=MESSAGE_ID, metavar="ID")
@click.option("--reason", metavar="TEXT", help="The reason, stored as the error of its messages.")
@click.pass_obj
def cancel(session: CliSession, batch_id: int, reason: str | None) -> None:
    """Cancel the messages of a batch that have not ended.

    Nothing comes into it any more.
    """
    done = 0
    with session.connect() as conn:
        while did := run(conn, calls.cancel_batch(batch_id, reason, PAGE)):
            done += did
    session.done(f"cancelled {plural(done, 'message')} of batch {batch_id}", id=batch_id, cancelled=done)


@batch.command()
@click.argument("batch_id", type=MESSAGE_ID, metavar="ID")
@RATE
@DELAY
@click.option("--force", is_flag=True, help="Also messages that were redriven max_redrives times already.")
@click.pass_obj
def redrive(session: CliSession, batch_id: int, rate: float | None, delay: timedelta, force: bool) -> int:
    """Put the dead messages of a batch back.

    It is finished again when they have ended.
    """
    none = f"batch {batch_id} has no dead message that could be redriven"
    with session.connect() as conn:
        rows = _redriven(conn, batch_id, RateSpreader(rate, delay), force=force)
        return conclude(session, rows, "archived_id", "redrove {}", none, by_id=False)


def _redriven(conn: psycopg.Connection, batch_id: int, spreader: RateSpreader, *, force: bool) -> Iterator[Redriven]:
    done, after = 0, 0
    while page := run(conn, calls.redrive_batch(batch_id, PAGE, spreader.rate, spreader.delay(done), force, after)):
        yield from page
        done += len(page)
        after = max(each.archived_id for each in page)


def _as_json(found: BatchState) -> dict[str, Any]:
    row = asdict(found)
    return {
        name.removesuffix("_json"): Raw(value) if name.endswith("_json") and value else value
        for name, value in row.items()
    }


def _listed(found: BatchState, clock: datetime) -> dict[str, Any]:
    return asdict(found) | {"age": show_ago(clock - found.created_at), "end": _end(found, clock)}


def _end(found: BatchState, clock: datetime) -> str | None:
    if found.finished_at is not None:
        return show_ago(clock - found.finished_at)
    return None if found.estimated_end is None else f"about {show_ago(clock - found.estimated_end)}"


def _print(session: CliSession, found: BatchProgress, clock: datetime) -> None:
    ended = found.total - found.live
    session.say(f"batch {found.id}  {found.name or ''}  {found.state}".replace("    ", "  "))
    facts = {
        "messages": f"{found.total:,}: {ended:,} ended, {found.live:,} live",
        "ended": f"{found.succeeded:,} succeeded, {found.dead:,} dead, {found.cancelled:,} cancelled",
        "created": f"{show_ago(clock - found.created_at)} by {found.created_by}",
        "closed": found.closed_at and show_ago(clock - found.closed_at),
        "cancelled": found.cancelled_at and show_ago(clock - found.cancelled_at),
        "finished": found.finished_at and show_ago(clock - found.finished_at),
        "end": _end(found, clock) if found.finished_at is None else None,
        "metadata": found.metadata_json,
    }
    callbacks = {f"on {event}": _callback(each) for event, each in (found.callbacks or {}).items()}
    for label, value in (facts | callbacks).items():
        if value is not None:
            session.say(f"  {label:<12}{value}")


def _callback(each: dict[str, Any]) -> str:
    if "message" in each:
        return f"message {each['message']} of topic {each['topic']}"
    return f"topic {each['topic']}" + (f": {each['error']}" if "error" in each else "")
