"""`pgrouse redrive`: put dead messages back into the queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import click
import psycopg

from pgrouse.client.call import run
from pgrouse.client.calls import dead as dead_calls
from pgrouse.client.message_state import DEAD
from pgrouse.client.queries.clock import now
from pgrouse.client.queries.dead import dead_details
from pgrouse.client.redrive import BATCH, REDRIVEN_OUTCOMES, RateSpreader
from pgrouse.errors import ExitCode
from pgrouse.terminal.bulk import DELAY, RATE, conclude, redrive_in_batches, report_skipped
from pgrouse.terminal.command import READ_TIMEOUT, CliSession, Command
from pgrouse.terminal.param_types import DURATION, MESSAGE_ID
from pgrouse.terminal.table import Column
from pgrouse.values.error_line import last_line
from pgrouse.values.format import plural, show_ago
from pgrouse.values.jsonb import Raw, encode

PAGE = 10_000  # ids that are chosen at once
BOUND = 10_000  # a dry run looks at this many

NO_DETAILS = dict.fromkeys(("id", "topic", "result", "error_fingerprint", "error", "age"))


@click.command(cls=Command)
@click.argument("message_ids", type=MESSAGE_ID, nargs=-1, metavar="[ID...]")
@click.option("--topic", help="Those of this topic.")
@click.option("--result", type=click.Choice(DEAD), help="Those with this result.")
@click.option("--fingerprint", metavar="HEX", help="Those with this kind of error: see `pgrouse dead group`.")
@click.option("--error", metavar="TEXT", help="Those whose error contains this text, in upper or lower case.")
@click.option("--since", type=DURATION, help="Those that ended in this time, like 30m or 7d.")
@click.option("--until", type=DURATION, help="Those that ended longer ago than this.")
@click.option("--limit", type=click.IntRange(1), help="The maximum number, the oldest first.")
@click.option("--all", "every", is_flag=True, help="All of them.")
@RATE
@DELAY
@click.option("--force", is_flag=True, help="Also those that were redriven max_redrives times already.")
@click.option(
    "--payload", metavar="JSON", help="For one ID: merge this into its payload, as RFC 7396 says: null removes a key."
)
@click.option("--headers", metavar="JSON", help="For one ID: merge this into its headers.")
@click.option("--to", metavar="TOPIC", help="For one ID: put it into this topic.")
@click.option("--replace", is_flag=True, help="Replace the payload and headers instead of merging.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only print what would be redriven, by topic, result and kind of error, with a sample of each; "
    "at most 10,000 messages.",
)
@click.pass_obj
def redrive(
    session: CliSession,
    /,
    message_ids: tuple[int, ...],
    every: bool,
    rate: float | None,
    delay: timedelta,
    force: bool,
    payload: str | None,
    headers: str | None,
    to: str | None,
    replace: bool,
    dry_run: bool,
    **filters: Any,
) -> int:
    """Put dead messages back.

    Those with the given ids, those that match all filters, or all: each becomes a new message. A message is redriven
    once; its new message may be redriven again when it dies, up to max_redrives times. A message stays dead if a newer
    one with its key waits.
    """
    edit = {"payload": payload, "headers": headers, "to": to}
    chosen = any(value is not None for value in filters.values())
    if sum((bool(message_ids), chosen, every and not chosen)) != 1:
        raise click.UsageError("give either IDs, or filters, or --all")
    if any(value is not None for value in edit.values()):
        return _redrive_edited(
            session, _only(message_ids, bool(rate or delay or dry_run)), edit, merge=not replace, force=force
        )
    if replace:
        raise click.UsageError("--replace needs --payload or --headers")
    with session.connect() as conn:
        pages = iter([message_ids]) if message_ids else _pages(conn, filters)
        if dry_run:
            return _preview(session, conn, pages, force=force)
        rows = redrive_in_batches(conn, dead_calls.redrive, pages, RateSpreader(rate, delay), force=force)
        return _conclude(session, rows, by_id=bool(message_ids))


def _only(message_ids: tuple[int, ...], has_more: bool) -> int:
    if len(message_ids) != 1 or has_more:
        raise click.UsageError(
            "--payload, --headers and --to edit one message: give one ID, and neither --rate, --delay nor --dry-run"
        )
    return message_ids[0]


def _redrive_edited(
    session: CliSession, message_id: int, edit: dict[str, str | None], *, merge: bool, force: bool
) -> int:
    payload, headers = (
        None if (text := edit[name]) is None else encode(Raw(text), name) for name in ("payload", "headers")
    )
    rows = session.run(dead_calls.redrive_edited(message_id, payload, headers, edit["to"], merge, force))
    return _conclude(session, rows, by_id=True)


def _pages(conn: psycopg.Connection, filters: dict[str, Any]) -> Iterator[list[int]]:
    """Select page by page, only messages that died before the start.

    What dies again in the meantime is not redriven again.
    """
    start = run(conn, now())
    times = {
        "since": None if filters["since"] is None else start - filters["since"],
        "until": start - (filters["until"] or timedelta(0)),
    }
    left, after = filters["limit"] or 2**62, None
    while left > 0:
        page = min(left, PAGE)
        ids = _page(conn, filters | times | {"limit": page, "after": after})
        if ids:
            yield ids
        if len(ids) < page:
            return
        left, after = left - len(ids), ids[-1]


def _page(conn: psycopg.Connection, filters: dict[str, Any]) -> list[int]:
    with conn.transaction():
        conn.execute(READ_TIMEOUT)
        return [each.id for each in run(conn, dead_calls.find_dead(**filters))]


def _conclude(session: CliSession, rows: Iterable[dead_calls.Redriven], *, by_id: bool) -> int:
    none = "no dead message matches: nothing was redriven"
    return conclude(session, rows, "archived_id", "redrove {}", none, by_id=by_id)


def _preview(session: CliSession, conn: psycopg.Connection, pages: Iterator[Any], *, force: bool) -> int:
    found = _would(conn, next(pages, [])[:BOUND], force)
    groups = _grouped(found)
    columns = [
        Column("TOPIC", "topic", wide=True),
        Column("RESULT", "result"),
        Column("MESSAGES", "messages", "{:,}".format, right=True),
        Column("OLDEST", "oldest", show_ago),
        Column("FINGERPRINT", "error_fingerprint"),
        Column("SAMPLE", "sample_id", right=True),
        Column("ERROR", "sample_error", last_line, wide=True),
    ]
    session.rows(columns, groups, "no dead message matches: nothing would be redriven")
    outcomes = Counter(row["outcome"] for row in found)
    done = sum(outcomes[outcome] for outcome in REDRIVEN_OUTCOMES)
    if groups:
        least = "at least " if len(found) == BOUND else ""
        session.say(f"would redrive {least}{plural(done, 'message')}: run it again without --dry-run")
    report_skipped(session, outcomes)
    return ExitCode.OK


def _would(conn: psycopg.Connection, ids: Sequence[int], force: bool) -> list[dict[str, Any]]:
    """Return what a redrive would do with each message, the oldest first.

    Each has its row of the archive, if there is one.
    """
    found: list[dict[str, Any]] = []
    for start in range(0, len(ids), BATCH):
        would = run(conn, dead_calls.preview_redrive(ids[start : start + BATCH], force=force))
        details = run(conn, dead_details([(each.archived_id, each.archived_at) for each in would]))
        rows = {each.id: asdict(each) for each in details}
        found += [NO_DETAILS | rows.get(each.archived_id, {}) | {"outcome": each.outcome} for each in would]
    return sorted(found, key=lambda row: (-(row["age"] or timedelta(0)), row["id"] or 0))


def _grouped(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what would be put back, by topic, result and kind of error; the oldest of each is its sample."""
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in found:
        if row["outcome"] not in REDRIVEN_OUTCOMES:
            continue
        key = (row["topic"] or "", row["result"] or "", row["error_fingerprint"] or "")
        group = groups.setdefault(
            key,
            {name: row[name] for name in ("topic", "result", "error_fingerprint")}
            | {
                "messages": 0,
                "oldest": row["age"] or timedelta(0),
                "sample_id": row["id"],
                "sample_error": row["error"],
            },
        )
        group["messages"] += 1
    return [groups[key] for key in sorted(groups)]
