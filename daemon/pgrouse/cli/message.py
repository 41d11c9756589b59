"""`pgrouse message`: list, show, retry and end single messages."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from pgrouse.cli.command import CliSession, CommandGroup
from pgrouse.cli.output import Column
from pgrouse.cli.param_types import DURATION, MESSAGE_ID, RESULTS
from pgrouse.client.message_query import NEVER, STATE
from pgrouse.errors import ExitCode
from pgrouse.format import show_ago

if TYPE_CHECKING:
    import psycopg

LIVE_STATES = ("ready", "delayed", "retrying", "running")

# One branch per index of the table, each bounded: a topic is found by its index, no topic by the primary key.
BRANCHES = (
    "m.claim_id IS NOT NULL",
    "m.claim_id IS NULL AND m.channel IS NULL",
    "m.claim_id IS NULL AND m.channel IS NOT NULL",
)
LIVE = f"""
  (SELECT m.id, m.topic, m.channel, m.key, m.priority, {STATE} AS state, m.attempts, m.created_at, m.available_at,
          m.locked_by AS worker, m.lock_expires_at, NULL::timestamptz AS archived_at
   FROM messages.message AS m
   WHERE {{branch}}
     AND (%(topic)s::text IS NULL OR m.topic = %(topic)s)
     AND (%(state)s::text IS NULL OR {STATE} = %(state)s)
     AND m.id > %(after)s
   ORDER BY m.id LIMIT %(limit)s)"""  # noqa: S608 - constants only
LIST_LIVE = " UNION ALL ".join(LIVE.format(branch=branch) for branch in BRANCHES) + " ORDER BY id LIMIT %(limit)s"
LIST_ENDED = """
  SELECT a.id, a.topic, a.channel, a.key, a.priority, a.result AS state, a.attempts, a.created_at, a.available_at,
         a.handled_by AS worker, NULL::timestamptz AS lock_expires_at, a.archived_at
  FROM messages.message_archive AS a
  WHERE a.result = %(state)s
    AND a.archived_at > now() - %(since)s
    AND (%(topic)s::text IS NULL OR a.topic = %(topic)s)
    AND a.id > %(after)s
  ORDER BY a.id LIMIT %(limit)s"""


@click.group(cls=CommandGroup)
def message() -> None:
    """List, show, retry, cancel, skip and unblock messages."""


@message.command("list")
@click.option("--topic", help="Only of this topic.")
@click.option(
    "--state", type=click.Choice([*LIVE_STATES, *RESULTS]), help="Only in this state. Default: all that have not ended."
)
@click.option(
    "--since",
    type=DURATION,
    default="1d",
    show_default=True,
    help="For the state of ended messages: how far back to look.",
)
@click.option("--after", type=click.IntRange(0), default=0, help="Only ids above this one: the next page.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@click.pass_obj
def list_messages(
    session: CliSession, topic: str | None, state: str | None, since: timedelta, after: int, limit: int
) -> None:
    """List messages, the oldest first."""
    from psycopg.rows import dict_row  # noqa: PLC0415

    query = LIST_ENDED if state in RESULTS else LIST_LIVE
    with session.read() as conn:
        values = {"topic": topic, "state": state, "since": since, "after": after, "limit": limit}
        rows = conn.cursor(row_factory=dict_row).execute(query.encode(), values).fetchall()
        columns = _columns(conn)
    if session.output.rows(columns, rows, "no messages" + (f" of topic {topic}" if topic else "")) == limit:
        session.output.note(f"there may be more: --after {rows[-1]['id']}")


def _columns(conn: psycopg.Connection) -> list[Column]:
    row = conn.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    now = row[0]
    return [
        Column("ID", "id", right=True),
        Column("TOPIC", "topic", wide=True),
        Column("STATE", "state", style=style_of_state),
        Column("PRIO", "priority", right=True),
        Column("ATTEMPTS", "attempts", right=True),
        Column("AVAILABLE", "available_at", lambda at: "after others" if at == NEVER else show_ago(now - at)),
        Column("ENDED", "archived_at", lambda at: show_ago(now - at), optional=True),
        Column("WORKER", "worker", wide=True, optional=True),
        Column("CHANNEL", "channel", wide=True, optional=True),
        Column("KEY", "key", wide=True, optional=True),
    ]


def style_of_state(state: str) -> str:
    """Return the colour of a state or result."""
    return {
        "running": "cyan",
        "success": "green",
        "retrying": "yellow",
        "delayed": "dim",
        "cancelled": "dim",
        "ready": "",
    }.get(state, "red")


@message.command()
@click.argument("message_id", type=MESSAGE_ID, metavar="ID")
@click.option(
    "--no-payload", is_flag=True, help="Leave the contents out; needed by users without the right to read them."
)
@click.option("--decrypt", is_flag=True, help="Decrypt the contents with the keys of the configuration.")
@click.pass_obj
def show(session: CliSession, message_id: int, no_payload: bool, decrypt: bool) -> int:
    """Show everything about a message, live or archived."""
    from pgrouse.cli.message_view import show_message  # noqa: PLC0415

    if decrypt and no_payload:
        raise click.UsageError("--decrypt and --no-payload exclude each other")
    return show_message(session, message_id, contents=not no_payload, decrypt=decrypt)


@message.command()
@click.argument("message_ids", type=MESSAGE_ID, nargs=-1, required=True, metavar="ID...")
@click.option("--reason", help="Stored as the error of the message.")
@click.pass_obj
def cancel(session: CliSession, message_ids: tuple[int, ...], reason: str | None) -> int:
    """Cancel messages; they are archived as cancelled. A running handler is stopped."""
    with session.connect() as conn:
        row: Any = conn.execute("SELECT messages.cancel(%s, %s)", [list(message_ids), reason]).fetchone()
    cancelled = set(row[0])
    missed = [each for each in dict.fromkeys(message_ids) if each not in cancelled]
    if session.as_json:
        session.output.record({"cancelled": sorted(cancelled), "not_live": missed})
    for each in sorted(cancelled):
        session.output.say(f"cancelled {each}")
    for each in missed:
        session.output.problem(
            f"message {each} was not cancelled: it has ended, or was never published (`pgrouse message show {each}`)"
        )
    return ExitCode.FOUND_A_PROBLEM if missed else ExitCode.OK


@message.command()
@click.argument("message_ids", type=MESSAGE_ID, nargs=-1, required=True, metavar="ID...")
@click.option("--reason", help="Stored as the error of the message.")
@click.pass_obj
def skip(session: CliSession, message_ids: tuple[int, ...], reason: str | None) -> int:
    """Skip waiting messages that block those after them.

    It is meant for the message that blocks an ordered channel. They are archived as failed, and can be redriven.
    """
    with session.connect() as conn:
        # The notice about new dead messages is expected here.
        conn.execute("SET client_min_messages = error")
        row: Any = conn.execute("SELECT messages.skip(%s, %s)", [list(message_ids), reason]).fetchone()
    skipped = set(row[0])
    missed = [each for each in dict.fromkeys(message_ids) if each not in skipped]
    if session.as_json:
        session.output.record({"skipped": sorted(skipped), "not_waiting": missed})
    for each in sorted(skipped):
        session.output.say(f"skipped {each}")
    for each in missed:
        session.output.problem(
            f"message {each} was not skipped: it runs, has ended, or was never published (`pgrouse explain {each}`)"
        )
    return ExitCode.FOUND_A_PROBLEM if missed else ExitCode.OK


@message.command()
@click.argument("message_ids", type=MESSAGE_ID, nargs=-1, required=True, metavar="ID...")
@click.pass_obj
def delete(session: CliSession, message_ids: tuple[int, ...]) -> int:
    """Delete waiting messages without a trace.

    They are not archived; to archive them, cancel them instead. Running messages are left alone.
    """
    with session.connect() as conn:
        row: Any = conn.execute("SELECT messages.delete(%s)", [list(message_ids)]).fetchone()
    deleted = set(row[0])
    missed = [each for each in dict.fromkeys(message_ids) if each not in deleted]
    if session.as_json:
        session.output.record({"deleted": sorted(deleted), "not_waiting": missed})
    for each in sorted(deleted):
        session.output.say(f"deleted {each}")
    for each in missed:
        session.output.problem(
            f"message {each} was not deleted: it runs, has ended, or was never published (`pgrouse explain {each}`)"
        )
    return ExitCode.FOUND_A_PROBLEM if missed else ExitCode.OK


@message.command()
@click.argument("message_ids", type=MESSAGE_ID, nargs=-1, required=True, metavar="ID...")
@click.pass_obj
def unblock(session: CliSession, message_ids: tuple[int, ...]) -> int:
    """Let messages that depend on others no longer wait for them.

    It is meant for a message that waits for a dead or cancelled one that will not be redriven. Its own successors still wait for it.
    """
    with session.connect() as conn:
        row: Any = conn.execute("SELECT messages.unblock(%s)", [list(message_ids)]).fetchone()
    released = set(row[0])
    missed = [each for each in dict.fromkeys(message_ids) if each not in released]
    if session.as_json:
        session.output.record({"released": sorted(released), "not_waiting": missed})
    for each in sorted(released):
        session.output.say(f"{each} waits for no other message")
    for each in missed:
        session.output.problem(f"message {each} was not released: see `pgrouse explain {each}`")
    return ExitCode.FOUND_A_PROBLEM if missed else ExitCode.OK


@message.command()
@click.argument("message_ids", type=MESSAGE_ID, nargs=-1, required=True, metavar="ID...")
@click.pass_obj
def retry(session: CliSession, message_ids: tuple[int, ...]) -> int:
    """Let waiting messages be tried at once.

    Delayed ones, and those that wait for their next attempt. Limits, pauses and an open breaker still apply.
    """
    with session.connect() as conn:
        row: Any = conn.execute("SELECT messages.retry_now(%s)", [list(message_ids)]).fetchone()
    moved = set(row[0])
    missed = [each for each in dict.fromkeys(message_ids) if each not in moved]
    if session.as_json:
        session.output.record({"due": sorted(moved), "not_waiting": missed})
    for each in sorted(moved):
        session.output.say(f"{each} is due")
    for each in missed:
        session.output.problem(f"message {each} does not wait for a time (`pgrouse explain {each}`)")
    return ExitCode.FOUND_A_PROBLEM if missed else ExitCode.OK
