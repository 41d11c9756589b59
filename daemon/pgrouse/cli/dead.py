"""`pgrouse dead`: the messages that ended badly."""

from __future__ import annotations

from datetime import timedelta

import click

from pgrouse.cli.command import Group, Session
from pgrouse.cli.message import style_of_state
from pgrouse.cli.output import Column, show_ago
from pgrouse.cli.parameter import DEAD_RESULTS, DURATION, MESSAGE_ID
from pgrouse.errors import ExitCode

# The conditions repeat the predicate of the index message_archive_dead. %(before)s: the last id of the page before.
LIST = """
  SELECT d.id, d.topic, d.result, d.channel, d.key, d.attempts, d.archived_at, d.handled_by AS worker, d.error_fingerprint,
         d.error, clock_timestamp() - d.archived_at AS age, d.redriven_as
  FROM messages.dead AS d
  WHERE d.result NOT IN ('success', 'cancelled')
    AND (%(topic)s::text IS NULL OR d.topic = %(topic)s)
    AND (%(result)s::text IS NULL OR d.result = %(result)s)
    AND (%(since)s::interval IS NULL OR d.archived_at > now() - %(since)s)
    AND (%(redriven)s OR d.redriven_as IS NULL)
    AND (%(before)s::bigint IS NULL OR (d.archived_at, d.id) < (
      SELECT last.archived_at, last.id FROM messages.message_archive AS last WHERE last.id = %(before)s))
  ORDER BY d.archived_at DESC, d.id DESC LIMIT %(limit)s"""


@click.group(cls=Group)
def dead() -> None:
    """List and show dead messages."""


@dead.command("list")
@click.option("--topic", help="Only of this topic.")
@click.option("--result", type=click.Choice(DEAD_RESULTS), help="Only with this result.")
@click.option("--since", type=DURATION, help="Only those that ended in this time, like 30m or 7d.")
@click.option("--before", type=MESSAGE_ID, help="Only those listed behind this id: the next page.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@click.option("--redriven", is_flag=True, help="Those too that were put back since.")
@click.option("--fail-if-any", is_flag=True, help="Exit with 1 if the list is not empty: for scripts and probes.")
@click.pass_obj
def list_dead(
    session: Session, /, fail_if_any: bool, limit: int, **filters: str | int | bool | timedelta | None
) -> int:
    """List dead messages, the latest first."""
    from psycopg.rows import dict_row  # noqa: PLC0415

    with session.read() as conn:
        rows = conn.cursor(row_factory=dict_row).execute(LIST.encode(), {**filters, "limit": limit}).fetchall()
    ages = {row["id"]: row.pop("age") for row in rows}
    found = session.output.rows(
        _columns(), [row | ({} if session.as_json else {"age": ages[row["id"]]}) for row in rows], "no dead messages"
    )
    if found == limit:
        session.output.note(f"there may be more: --before {rows[-1]['id']}")
    return ExitCode.FOUND_A_PROBLEM if found and fail_if_any else ExitCode.OK


def _columns() -> list[Column]:
    return [
        Column("ID", "id", right=True),
        Column("TOPIC", "topic", wide=True),
        Column("RESULT", "result", style=style_of_state),
        Column("ENDED", "age", show_ago),
        Column("ATTEMPTS", "attempts", right=True),
        Column("REDRIVEN AS", "redriven_as", right=True, optional=True),
        Column("ERROR", "error", _last_line, wide=True),
    ]


def _last_line(error: str) -> str:
    """Return what a traceback says at its end: the error itself."""
    lines = error.strip().splitlines()
    return lines[-1][:200] if lines else ""


@dead.command()
@click.argument("message_id", type=MESSAGE_ID, metavar="ID")
@click.option(
    "--no-payload", is_flag=True, help="Leave the contents out; users without the right to read them need this."
)
@click.pass_obj
def show(session: Session, message_id: int, no_payload: bool) -> int:
    """Show all that is known of a dead message."""
    from pgrouse.cli.portrait import show_message  # noqa: PLC0415

    return show_message(session, message_id, contents=not no_payload, only_dead=True)
