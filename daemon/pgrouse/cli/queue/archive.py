"""`pgrouse archive`: delete messages from the archive by hand. Normally the retention of the topics does that."""

from __future__ import annotations

from datetime import datetime, timedelta

import click
import psycopg

from pgrouse.client.call import run
from pgrouse.client.calls.maintenance import purge_archive
from pgrouse.client.queries.archive import count_older
from pgrouse.client.queries.clock import now
from pgrouse.terminal.bulk import BOUND, YES, ask_to_delete
from pgrouse.terminal.command import READ_TIMEOUT, CliSession, CommandGroup
from pgrouse.terminal.param_types import DURATION
from pgrouse.values.format import plural


@click.group(cls=CommandGroup)
def archive() -> None:
    """Delete old messages from the archive."""


@archive.command()
@click.option("--topic", help="Only this topic.")
@click.option("--older-than", type=DURATION, required=True, help="Messages that ended longer ago than this, like 7d.")
@click.option("--dry-run", is_flag=True, help="Only print how many would be deleted; counting stops at 10,000.")
@YES
@click.pass_obj
def purge(session: CliSession, topic: str | None, older_than: timedelta, dry_run: bool, yes: bool) -> None:
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
        if ask_to_delete(session, found, what, "no message is that old", dry_run=dry_run, yes=yes):
            deleted = _purge(conn, before, topic)
            session.done(f"deleted {plural(deleted, 'message')}", deleted=deleted)


def _purge(conn: psycopg.Connection, before: datetime, topic: str | None) -> int:
    deleted, place = 0, None
    while True:
        page = run(conn, purge_archive(before, topic, place))
        deleted, place = deleted + page.deleted, page.place
        if place is None:
            return deleted
