"""`pgrouse archive`: delete messages from the archive by hand. Normally the retention of the topics does that."""

from __future__ import annotations

from datetime import datetime, timedelta

import click
import psycopg

from pgrouse.client.call import run
from pgrouse.client.calls.maintenance import purge_archive
from pgrouse.client.clock import now
from pgrouse.client.queries.archive import count_older
from pgrouse.errors import ExitCode
from pgrouse.format import plural
from pgrouse.terminal.command import READ_TIMEOUT, CliSession, CommandGroup
from pgrouse.terminal.param_types import DURATION

BOUND = 10_000  # counting stops here


@click.group(cls=CommandGroup)
def archive() -> None:
    """Delete old messages from the archive."""


@archive.command()
@click.option("--topic", help="Only this topic.")
@click.option("--older-than", type=DURATION, required=True, help="Messages that ended longer ago than this, like 7d.")
@click.option("--dry-run", is_flag=True, help="Only print how many would be deleted; counting stops at 10,000.")
@click.option("--yes", is_flag=True, help="Do not ask: for scripts.")
@click.pass_obj
def purge(session: CliSession, topic: str | None, older_than: timedelta, dry_run: bool, yes: bool) -> int:
    """Delete messages that have ended before their retention does it.

    With any result. It works in short transactions, and can be interrupted and started again.
    """
    with session.connect() as conn:
        before = run(conn, now()) - older_than
        with conn.transaction():
            conn.execute(READ_TIMEOUT)
            found = run(conn, count_older(before, topic, BOUND))
        what = f"{'at least ' if found >= BOUND else ''}{plural(found, 'message')}" + (
            f" of topic {topic}" if topic else ""
        )
        if dry_run or not found:
            return _preview(session, found, what)
        if not yes:
            click.confirm(f"delete {what} for good?", abort=True, err=True)
        return _purge(session, conn, before, topic)


def _preview(session: CliSession, found: int, what: str) -> int:
    session.output.record({"messages": found, "at_least": found >= BOUND})
    session.output.say(f"would delete {what}: run it again without --dry-run" if found else "no message is that old")
    return ExitCode.OK


def _purge(session: CliSession, conn: psycopg.Connection, before: datetime, topic: str | None) -> int:
    deleted, place = 0, None
    while True:
        page = run(conn, purge_archive(before, topic, place))
        deleted, place = deleted + page.deleted, page.place
        if place is None:
            break
    session.output.record({"deleted": deleted})
    session.output.say(f"deleted {plural(deleted, 'message')}")
    return ExitCode.OK
