"""`pgrouse dead`: messages that failed for good."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import click
import psycopg

from pgrouse.cli.queue.message import style_of_state
from pgrouse.cli.queue.message_view import show_message
from pgrouse.client.call import run
from pgrouse.client.calls.dead import DeadGroup, dead_groups, dead_topics, requeue_dead_letters
from pgrouse.client.message_state import DEAD
from pgrouse.client.queries.clock import now
from pgrouse.client.queries.dead import latest_dead, waiting_copies
from pgrouse.client.redrive import RateSpreader
from pgrouse.errors import ExitCode
from pgrouse.terminal.bulk import DELAY, RATE, conclude, redrive_in_batches
from pgrouse.terminal.command import READ_TIMEOUT, CliSession, CommandGroup
from pgrouse.terminal.param_types import DURATION, MESSAGE_ID
from pgrouse.terminal.table import Column
from pgrouse.values.error_line import last_line
from pgrouse.values.format import show_ago, sparkline

PAGE = 10_000  # ids that are chosen at once

# With more than half of an archive in view the planner would read all of it.
BY_INDEX = b"SET LOCAL enable_seqscan = off; SET LOCAL jit = off"

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@click.group(cls=CommandGroup)
def dead() -> None:
    """List, group and show dead messages, requeue dead letters."""


@dead.command("list")
@click.option("--topic", help="Only this topic.")
@click.option("--result", type=click.Choice(DEAD), help="Only with this result.")
@click.option("--fingerprint", metavar="HEX", help="Only with this kind of error: see `pgrouse dead group`.")
@click.option("--error", metavar="TEXT", help="Only those whose error contains this text, in upper or lower case.")
@click.option("--since", type=DURATION, help="Only those that ended within this time, like 30m or 7d.")
@click.option("--until", type=DURATION, help="Only those that ended longer ago than this.")
@click.option("--before", type=MESSAGE_ID, help="Only messages that died before this one: the next page.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="The maximum number.")
@click.option("--redriven", is_flag=True, help="Also those that were redriven since.")
@click.option("--fail-if-any", is_flag=True, help="Exit with 1 if the list is not empty: for scripts and probes.")
@click.pass_obj
def list_dead(
    session: CliSession,
    /,
    topic: str | None,
    fail_if_any: bool,
    limit: int,
    **filters: Any,
) -> int:
    """List dead messages, the latest first."""
    with session.read() as conn:
        conn.execute(BY_INDEX)
        topics = [topic] if topic else run(conn, dead_topics())
        found = run(conn, latest_dead(topics, **filters, most=limit))
    rows = [asdict(each) for each in found]
    for row in rows:
        if session.as_json:
            del row["age"]
        else:
            row["redrives"] = row["redrives"] or None
    session.rows(_columns(), rows, "no dead messages")
    if len(found) == limit:
        session.note(f"there may be more: --before {found[-1].id}")
    return ExitCode.FOUND_A_PROBLEM if found and fail_if_any else ExitCode.OK


def _columns() -> list[Column]:
    return [
        Column("ID", "id", right=True),
        Column("TOPIC", "topic", wide=True),
        Column("RESULT", "result", style=style_of_state),
        Column("ENDED", "age", show_ago),
        Column("ATTEMPTS", "attempts", right=True),
        Column("REDRIVES", "redrives", right=True, optional=True),
        Column("REDRIVEN AS", "redriven_as", right=True, optional=True),
        Column("ERROR", "error", last_line, wide=True),
    ]


@dead.command()
@click.option("--topic", help="Only this topic.")
@click.option("--result", type=click.Choice(DEAD), help="Only with this result.")
@click.option(
    "--since",
    type=DURATION,
    default="7d",
    show_default=True,
    help="How far back to look; 2d or less is shown by the hour.",
)
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="The maximum number of groups."
)
@click.option("--redriven", is_flag=True, help="Also groups whose messages were all redriven since.")
@click.pass_obj
def group(
    session: CliSession, topic: str | None, result: str | None, since: timedelta, limit: int, redriven: bool
) -> None:
    """Group dead messages by topic, result and kind of error.

    The latest 2,000 of each topic are counted: where there are more, numbers end with a plus. The trend shows the
    deaths of each hour or day, the latest at the right.
    """
    unit = HOUR if since <= 2 * DAY else DAY
    bars = min(60, max(1, round(since / unit)))
    with session.read() as conn:
        clock, found = run(conn, now()), run(conn, dead_groups(since, topic, result, bars))
    groups = [each for each in found if redriven or each.redriven < each.count]
    groups.sort(key=lambda each: (each.count - each.redriven, each.last_seen), reverse=True)
    rows = [asdict(each) if session.as_json else _shown(each, clock) for each in groups[:limit]]
    session.rows(_group_columns("hour" if unit == HOUR else "day"), rows, "no dead messages")


def _group_columns(unit: str) -> list[Column]:
    return [
        Column("DEAD", "dead", right=True),
        Column("TOPIC", "topic", wide=True),
        Column("RESULT", "result", style=style_of_state),
        Column("REDRIVEN", "redriven_shown", "{:,}".format, right=True, optional=True),
        Column("FIRST", "first_age", show_ago, spare=True),
        Column("LAST", "last_age", show_ago),
        Column(f"BY {unit.upper()}", "bars", spare=True),
        Column("FINGERPRINT", "error_fingerprint"),
        Column("SAMPLE", "sample_id", right=True),
        Column("ERROR", "sample_error", last_line, wide=True),
    ]


def _shown(found: DeadGroup, clock: datetime) -> dict[str, Any]:
    return asdict(found) | {
        "dead": f"{found.count - found.redriven:,}" + ("+" if found.at_least else ""),
        "redriven_shown": found.redriven or None,
        "first_age": clock - found.first_seen,
        "last_age": clock - found.last_seen,
        "bars": sparkline(found.trend),
    }


@dead.command()
@click.argument("message_ids", type=MESSAGE_ID, nargs=-1, metavar="[ID...]")
@click.option("--topic", help="All that wait in the .dlq topic of this topic.")
@click.option("--limit", type=click.IntRange(1), help="The maximum number, the oldest first.")
@RATE
@DELAY
@click.option("--force", is_flag=True, help="Also those that were redriven max_redrives times already.")
@click.pass_obj
def requeue(
    session: CliSession,
    message_ids: tuple[int, ...],
    topic: str | None,
    limit: int | None,
    rate: float | None,
    delay: timedelta,
    force: bool,
) -> int:
    """Move dead letters from a .dlq topic back to their own topic.

    It is the same as a redrive of the dead message: it is redriven once, by one of the two.
    """
    if bool(message_ids) == (topic is not None) or (message_ids and limit):
        raise click.UsageError("give either IDs or --topic, optionally with --limit")
    with session.connect() as conn:
        pages = (
            iter([list(message_ids)]) if topic is None else _waiting(conn, f"{topic.removesuffix('.dlq')}.dlq", limit)
        )
        rows = redrive_in_batches(conn, requeue_dead_letters, pages, RateSpreader(rate, delay), force=force)
        none = "no dead letters wait: nothing was moved"
        return conclude(session, rows, "copy_id", "moved {} back", none, by_id=bool(message_ids))


def _waiting(conn: psycopg.Connection, topic: str, limit: int | None) -> Iterator[list[int]]:
    left, after = limit or 2**62, 0
    while left > 0:
        with conn.transaction():
            conn.execute(READ_TIMEOUT)
            conn.execute(BY_INDEX)
            ids = run(conn, waiting_copies(topic, after, min(left, PAGE)))
        if not ids:
            return
        yield ids
        left, after = left - len(ids), ids[-1]


@dead.command()
@click.argument("message_id", type=MESSAGE_ID, metavar="ID")
@click.option(
    "--no-payload", is_flag=True, help="Leave the contents out; needed by users without the right to read them."
)
@click.pass_obj
def show(session: CliSession, message_id: int, no_payload: bool) -> int:
    """Show everything about a dead message."""
    return show_message(session, message_id, contents=not no_payload, only_dead=True)
