"""`pgrouse archive`: delete messages from the archive by hand. Normally the retention of the topics does that."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from pgrouse.cli.command import READ_TIMEOUT, CliSession, CommandGroup
from pgrouse.cli.param_types import DURATION
from pgrouse.errors import ExitCode
from pgrouse.format import plural

if TYPE_CHECKING:
    import psycopg

BOUND = 10_000  # counting stops here

COUNT = """
  SELECT count(*) FROM (
    SELECT FROM messages.message_archive AS a
    WHERE a.archived_at < %(before)s AND (%(topic)s::text IS NULL OR a.topic = %(topic)s)
    LIMIT %(bound)s
  ) AS f"""
PURGE = "SELECT p.deleted, p.place FROM messages.purge_archive(%(before)s, %(topic)s, %(place)s) AS p"


@click.group(cls=CommandGroup)
def archive() -> None:
    """Delete old messages from the archive."""


@archive.command()
@click.option("--topic", help="Only this topic.")
@click.option("--older-than", type=DURATION, required=True, help="Messages that ended longer ago than this, like 7d.")
@click.option("--dry-run", is_flag=True, help="Only print how many would be deleted.")
@click.option("--yes", is_flag=True, help="Do not ask: for scripts.")
@click.pass_obj
def purge(session: CliSession, topic: str | None, older_than: timedelta, dry_run: bool, yes: bool) -> int:
    """Delete messages that have ended before their retention does it.

    With any result. It works in short transactions, and can be interrupted and started again.
    """
    with session.connect() as conn:
        row: Any = conn.execute("SELECT clock_timestamp() - %s::interval", [older_than]).fetchone()
        before = row[0]
        found = _count(conn, before, topic)
        what = f"{'at least ' if found >= BOUND else ''}{plural(found, 'message')}" + (
            f" of topic {topic}" if topic else ""
        )
        if dry_run or not found:
            return _preview(session, found, what)
        if not yes:
            click.confirm(f"delete {what} for good?", abort=True, err=True)
        return _purge(session, conn, before, topic)


def _count(conn: psycopg.Connection, before: datetime, topic: str | None) -> int:
    with conn.transaction():
        conn.execute(READ_TIMEOUT)
        row: Any = conn.execute(COUNT, {"before": before, "topic": topic, "bound": BOUND}).fetchone()
    return int(row[0])


def _preview(session: CliSession, found: int, what: str) -> int:
    if session.as_json:
        session.output.record({"messages": found, "at_least": found >= BOUND})
    session.output.say(f"would delete {what}: run it again without --dry-run" if found else "no message is that old")
    return ExitCode.OK


def _purge(session: CliSession, conn: psycopg.Connection, before: datetime, topic: str | None) -> int:
    deleted, place = 0, None
    while True:
        row: Any = conn.execute(PURGE, {"before": before, "topic": topic, "place": place}).fetchone()
        deleted, place = deleted + row[0], row[1]
        if place is None:
            break
    if session.as_json:
        session.output.record({"deleted": deleted})
    session.output.say(f"deleted {plural(deleted, 'message')}")
    return ExitCode.OK
