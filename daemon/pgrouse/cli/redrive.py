"""`pgrouse redrive`: dead messages get another chance."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

import click

from pgrouse.cli.command import READ_TIMEOUT, Command, Session
from pgrouse.cli.output import Column, plural, show_ago
from pgrouse.cli.parameter import DEAD_RESULTS, DURATION, MESSAGE_ID
from pgrouse.errors import ExitCode

if TYPE_CHECKING:
    import psycopg

BATCH = 500
PUT_BACK = "SELECT r.archived_id, r.message_id FROM messages.redrive(%s) AS r ORDER BY r.archived_id"

WHERE = """
  FROM messages.dead AS d
  WHERE d.result NOT IN ('success', 'cancelled')
    AND d.redriven_as IS NULL
    AND (%(ids)s::bigint[] IS NULL OR d.id = ANY (%(ids)s))
    AND (%(topic)s::text IS NULL OR d.topic = %(topic)s)
    AND (%(result)s::text IS NULL OR d.result = %(result)s)
    AND (%(since)s::interval IS NULL OR d.archived_at > now() - %(since)s)"""
CHOSEN = f"SELECT d.id {WHERE} ORDER BY d.archived_at, d.id LIMIT %(limit)s"
SUMMARY = f"""
  SELECT chosen.topic, chosen.result, count(*) AS messages, clock_timestamp() - min(chosen.archived_at) AS oldest
  FROM (SELECT d.topic, d.result, d.archived_at {WHERE} ORDER BY d.archived_at, d.id LIMIT %(limit)s) AS chosen
  GROUP BY chosen.topic, chosen.result ORDER BY chosen.topic, chosen.result"""  # noqa: S608


@click.command(cls=Command)
@click.argument("message_ids", type=MESSAGE_ID, nargs=-1, metavar="[ID...]")
@click.option("--topic", help="Those of this topic.")
@click.option("--result", type=click.Choice(DEAD_RESULTS), help="Those with this result.")
@click.option("--since", type=DURATION, help="Those that ended in this time, like 30m or 7d.")
@click.option("--limit", type=click.IntRange(1), help="At most so many, the oldest first.")
@click.option("--all", "every", is_flag=True, help="All of them.")
@click.option("--dry-run", is_flag=True, help="Only say what would be put back.")
@click.pass_obj
def redrive(
    session: Session,
    message_ids: tuple[int, ...],
    topic: str | None,
    result: str | None,
    since: timedelta | None,
    limit: int | None,
    every: bool,
    dry_run: bool,
) -> int:
    """Put dead messages back.

    Those of the given ids, those that fit all filters, or all: each becomes a new message. A message is redriven once; its new message
    may be redriven when it dies. One whose key stands ready again stays dead.
    """
    filters = {"topic": topic, "result": result, "since": since, "limit": limit}
    chosen = any(value is not None for value in filters.values())
    if sum((bool(message_ids), chosen, every and not chosen)) != 1:
        raise click.UsageError("say which: either IDs, or filters, or --all")
    wanted = {**filters, "ids": list(message_ids) or None, "limit": limit or 2**62}
    with session.connect() as conn:
        if dry_run:
            return _preview(session, conn, wanted)
        return _redrive(session, conn, wanted)


def _preview(session: Session, conn: psycopg.Connection, wanted: dict[str, Any]) -> int:
    from psycopg.rows import dict_row  # noqa: PLC0415

    with conn.transaction():
        conn.execute(READ_TIMEOUT)
        rows = conn.cursor(row_factory=dict_row).execute(SUMMARY.encode(), wanted).fetchall()
    columns = [
        Column("TOPIC", "topic", wide=True),
        Column("RESULT", "result"),
        Column("MESSAGES", "messages", "{:,}".format, right=True),
        Column("OLDEST", "oldest", show_ago),
    ]
    session.output.rows(columns, rows, "no dead message fits: nothing would be put back")
    if rows:
        session.output.say(
            f"would put back {plural(sum(row['messages'] for row in rows), 'message')}: run it again without --dry-run"
        )
    return ExitCode.OK


def _redrive(session: Session, conn: psycopg.Connection, wanted: dict[str, Any]) -> int:
    """Put back batch by batch, each in a transaction of its own: a long run can be interrupted and begun again."""
    chosen = [message_id for (message_id,) in conn.execute(CHOSEN.encode(), wanted)]
    done = 0
    with _progress(len(chosen)) as progress:
        for start in range(0, len(chosen), BATCH):
            ids = chosen[start : start + BATCH]
            back = conn.execute(PUT_BACK, [ids]).fetchall()
            for archived_id, message_id in back:
                _report(session, archived_id, message_id, wanted)
            done += len(back)
            progress.advance(len(ids))
    return _conclude(session, wanted, len(chosen), done)


def _report(session: Session, archived_id: int, message_id: int, wanted: dict[str, Any]) -> None:
    if session.as_json:
        session.output.record({"archived_id": archived_id, "message_id": message_id})
    elif wanted["ids"]:
        session.output.say(f"{archived_id} is back as {message_id}")


def _conclude(session: Session, wanted: dict[str, Any], tried: int, done: int) -> int:
    if not wanted["ids"]:
        session.output.say(
            f"put back {plural(done, 'message')}" if tried else "no dead message fits: nothing was put back"
        )
    if stuck := tried - done:
        session.output.problem(
            f"{plural(stuck, 'message')} stayed dead: a message with their key waits already, or somebody else put them back just now"
        )
    asked = len(set(wanted["ids"] or []))
    if asked > tried:
        session.output.problem(
            f"{asked - tried} of {asked} ids: no dead message, or redriven before (`pgrouse dead list --redriven`)"
        )
    return ExitCode.FOUND_A_PROBLEM if done < asked else ExitCode.OK


class Progress(Protocol):
    """Where a long run says how far it is."""

    def advance(self, messages: int) -> None:
        """Take note that so many more are dealt with."""


class Silence:
    """No bar: nobody watches."""

    def advance(self, messages: int) -> None:
        """Do nothing."""


def _progress(total: int) -> AbstractContextManager[Progress]:
    """Give a bar on a terminal if there is more than one batch to do."""
    if total <= BATCH or not sys.stderr.isatty():
        return nullcontext(Silence())
    from pgrouse.cli.progress import Bar  # noqa: PLC0415

    return Bar("redriving", total)
