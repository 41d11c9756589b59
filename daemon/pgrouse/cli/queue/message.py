"""`pgrouse message`: list, show, retry and end single messages."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta

import click
import psycopg

from pgrouse.cli.queue.message_view import show_message
from pgrouse.cli.queue.signal import make_signal_url, signal, signal_key
from pgrouse.client.call import Call, run
from pgrouse.client.calls import operate, workflow
from pgrouse.client.message_state import LIVE, RESULTS
from pgrouse.client.queries.clock import now
from pgrouse.client.queries.message import NEVER, find_ended, find_live
from pgrouse.errors import ExitCode
from pgrouse.terminal.command import CliSession, CommandGroup
from pgrouse.terminal.param_types import DURATION, MESSAGE_ID
from pgrouse.terminal.table import Column
from pgrouse.values.format import show_ago
from pgrouse.values.jsonb import Raw, encode


@click.group(cls=CommandGroup)
def message() -> None:
    """List, show, edit, signal, retry, cancel, skip and unblock messages."""


for each in (signal, signal_key, make_signal_url):
    message.add_command(each)


@message.command("list")
@click.option("--topic", help="Only this topic.")
@click.option("--batch", metavar="ID", type=click.IntRange(1), help="Only the messages of this batch.")
@click.option(
    "--state", type=click.Choice([*LIVE, *RESULTS]), help="Only in this state. Default: all that have not ended."
)
@click.option(
    "--since",
    type=DURATION,
    default="1d",
    show_default=True,
    help="For the state of ended messages: how far back to look.",
)
@click.option(
    "--after", metavar="ID", type=click.IntRange(0), default=0, help="Only ids above this one: the next page."
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="The maximum number.")
@click.pass_obj
def list_messages(
    session: CliSession,
    topic: str | None,
    batch: int | None,
    state: str | None,
    since: timedelta,
    after: int,
    limit: int,
) -> None:
    """List messages, the oldest first."""
    call = (
        find_ended(topic, batch, state, since, after, limit)
        if state and state in RESULTS
        else find_live(topic, batch, state, after, limit)
    )
    with session.read() as conn:
        rows = [asdict(each) for each in run(conn, call)]
        columns = _columns(conn)
    if session.rows(columns, rows, "no messages" + (f" of topic {topic}" if topic else "")) == limit:
        session.note(f"there may be more: --after {rows[-1]['id']}")


def _columns(conn: psycopg.Connection) -> list[Column]:
    clock = run(conn, now())
    return [
        Column("ID", "id", right=True),
        Column("TOPIC", "topic", wide=True),
        Column("STATE", "state", style=style_of_state),
        Column("PRIO", "priority", right=True),
        Column("ATTEMPTS", "attempts", right=True),
        Column("AVAILABLE", "available_at", lambda at: "after others" if at == NEVER else show_ago(clock - at)),
        Column("ENDED", "archived_at", lambda at: show_ago(clock - at), optional=True),
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
        "blocked": "dim",
        "waiting": "dim",
        "cancelled": "dim",
        "ready": "",
    }.get(state, "red")


@message.command()
@click.argument("message_id", type=MESSAGE_ID, metavar="ID")
@click.option(
    "--no-payload", is_flag=True, help="Leave the contents out; needed by users without the right to read them."
)
@click.option(
    "--decrypt",
    is_flag=True,
    help="Decrypt the contents with the keys of the configuration; exit code 78 if the key is missing. "
    "Without it, only the name of the key and the number of bytes are shown.",
)
@click.pass_obj
def show(session: CliSession, message_id: int, no_payload: bool, decrypt: bool) -> int:
    """Show everything about a message, live or archived."""
    if decrypt and no_payload:
        raise click.UsageError("--decrypt and --no-payload exclude each other")
    return show_message(session, message_id, contents=not no_payload, decrypt=decrypt)


IDS = click.argument("message_ids", type=MESSAGE_ID, nargs=-1, required=True, metavar="ID...")
REASON = click.option("--reason", metavar="TEXT", help="Stored as the error of the message.")


@message.command()
@IDS
@REASON
@click.pass_obj
def cancel(session: CliSession, message_ids: tuple[int, ...], reason: str | None) -> int:
    """Cancel messages; they are archived as cancelled. A running handler is stopped."""
    problem = "message {0} was not cancelled: it has ended, or was never published (`pgrouse message show {0}`)"
    call = operate.cancel(message_ids, reason)
    return _act(session, call, message_ids, ("cancelled", "not_live"), "cancelled {}", problem)


@message.command()
@IDS
@REASON
@click.pass_obj
def skip(session: CliSession, message_ids: tuple[int, ...], reason: str | None) -> int:
    """Skip waiting messages that block those after them.

    It is meant for the message that blocks an ordered channel. They are archived as failed, and can be redriven.
    """
    problem = "message {0} was not skipped: it runs, has ended, or was never published (`pgrouse explain {0}`)"
    call = operate.skip(message_ids, reason)
    return _act(session, call, message_ids, ("skipped", "not_waiting"), "skipped {}", problem, is_quiet=True)


@message.command()
@IDS
@click.pass_obj
def delete(session: CliSession, message_ids: tuple[int, ...]) -> int:
    """Delete waiting messages without a trace.

    They are not archived; to archive them, cancel them instead. Running messages are left alone.
    """
    problem = "message {0} was not deleted: it runs, has ended, or was never published (`pgrouse explain {0}`)"
    call = operate.delete(message_ids)
    return _act(session, call, message_ids, ("deleted", "not_waiting"), "deleted {}", problem)


@message.command()
@IDS
@click.pass_obj
def unblock(session: CliSession, message_ids: tuple[int, ...]) -> int:
    """Let messages that depend on others no longer wait for them.

    It is meant for a message that waits for a dead or cancelled one that will not be redriven. Its own successors still
    wait for it.
    """
    said, problem = "{} waits for no other message", "message {0} was not released: see `pgrouse explain {0}`"
    return _act(session, workflow.unblock(message_ids), message_ids, ("released", "not_waiting"), said, problem)


@message.command()
@IDS
@click.pass_obj
def retry(session: CliSession, message_ids: tuple[int, ...]) -> int:
    """Make waiting messages ready at once.

    Delayed ones, and those that wait for their next attempt. Limits, pauses and an open breaker still apply.
    """
    problem = "message {0} does not wait for a time (`pgrouse explain {0}`)"
    return _act(session, operate.retry_now(message_ids), message_ids, ("due", "not_waiting"), "{} is due", problem)


@message.command()
@click.argument("message_id", type=MESSAGE_ID, metavar="ID")
@click.option("--payload", metavar="JSON", help="The new payload; it also replaces a body.")
@click.option("--headers", metavar="JSON", help="The new headers, all of them.")
@click.option("--seen", metavar="MD5", help="Only if this is still the MD5 of the payload as text.")
@click.pass_obj
def edit(session: CliSession, message_id: int, payload: str | None, headers: str | None, seen: str | None) -> int:
    """Replace the payload or the headers of a waiting message.

    Its id, its place, its key and its attempts stay. A message that runs is left alone.
    """
    if payload is headers is None:
        raise click.UsageError("give --payload or --headers")
    result = session.run(operate.edit(message_id, _checked(payload, "payload"), _checked(headers, "headers"), seen))
    problem = f"message {message_id} was not edited: {NOT_EDITED[result]}"
    return session.result(result == "edited", f"edited {message_id}", problem, id=message_id, result=result)


NOT_EDITED = {
    "edited": "",
    "changed": "its contents have changed since they were read",
    "running": "it runs: its handler has the old contents already",
    "ended": "it has ended, or was never published",
}


def _checked(text: str | None, name: str) -> str | None:
    return None if text is None else encode(Raw(text), name)


def _act(
    session: CliSession,
    call: Call[list[int]],
    message_ids: tuple[int, ...],
    keys: tuple[str, str],
    said: str,
    problem: str,
    *,
    is_quiet: bool = False,
) -> int:
    """Make a call, and report which messages it was done to; exit code 1 if there are others.

    Args:
        session: of the command.
        call: returns those that it was done to.
        message_ids: those that it was to be done to.
        keys: what JSON calls those that it was done to, and the others.
        said: of each that it was done to; `{}` stands for the id.
        problem: of each other.
        is_quiet: whether the server's warnings, about new dead messages, are expected.
    """
    with session.connect() as conn:
        if is_quiet:
            conn.execute("SET client_min_messages = error")
        done = run(conn, call)
    done.sort()
    missed = [each for each in dict.fromkeys(message_ids) if each not in done]
    session.record(dict(zip(keys, (done, missed), strict=True)))
    for each in done:
        session.say(said.format(each))
    for each in missed:
        session.problem(problem.format(each))
    return ExitCode.FOUND_A_PROBLEM if missed else ExitCode.OK
