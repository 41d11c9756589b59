"""`pgrouse redrive`: put dead messages back into the queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from pgrouse.cli.bulk import BATCH, REDRIVEN_OUTCOMES, REFUSED_OUTCOMES, redrive_in_batches, report, report_skipped
from pgrouse.cli.command import READ_TIMEOUT, CliSession, Command
from pgrouse.cli.output import Column
from pgrouse.cli.param_types import DEAD_RESULTS, DURATION, MESSAGE_ID
from pgrouse.error_line import last_line
from pgrouse.errors import ExitCode
from pgrouse.format import plural, show_ago

if TYPE_CHECKING:
    import psycopg

PAGE = 10_000  # ids that are chosen at once
BOUND = 10_000  # a dry run looks at so many

REDRIVE = """
  SELECT r.archived_id, r.message_id, r.outcome
  FROM messages.redrive(%(ids)s, %(rate)s, %(delay)s, %(force)s) AS r ORDER BY r.archived_id"""
EDITED = """
  SELECT r.archived_id, r.message_id, r.outcome
  FROM messages.redrive_edited(%(id)s, %(payload)s::jsonb, %(headers)s::jsonb, %(to)s, %(merge)s, %(force)s) AS r"""
TIMES = "SELECT clock_timestamp() - %(since)s::interval, clock_timestamp() - coalesce(%(until)s::interval, '0')"
FIND = """
  SELECT f.id
  FROM messages.find_dead(%(topic)s, %(result)s, %(fingerprint)s, %(since)s, %(until)s, %(error)s, %(page)s, %(after)s) AS f
  ORDER BY f.archived_at, f.id"""
WOULD = """
  SELECT m.outcome, a.topic, a.result, a.error_fingerprint, a.id, a.error, clock_timestamp() - a.archived_at AS age
  FROM messages.preview_redrive(%(ids)s, NULL, %(force)s) AS m
  LEFT JOIN messages.message_archive AS a ON a.id = m.archived_id AND a.archived_at = m.archived_at
  ORDER BY a.archived_at, a.id"""


@click.command(cls=Command)
@click.argument("message_ids", type=MESSAGE_ID, nargs=-1, metavar="[ID...]")
@click.option("--topic", help="Those of this topic.")
@click.option("--result", type=click.Choice(DEAD_RESULTS), help="Those with this result.")
@click.option("--fingerprint", help="Those with this kind of error: see `pgrouse dead group`.")
@click.option("--error", help="Those whose error contains this text, in upper or lower case.")
@click.option("--since", type=DURATION, help="Those that ended in this time, like 30m or 7d.")
@click.option("--until", type=DURATION, help="Those that ended longer ago than this.")
@click.option("--limit", type=click.IntRange(1), help="The maximum number, the oldest first.")
@click.option("--all", "every", is_flag=True, help="All of them.")
@click.option(
    "--rate",
    type=click.FloatRange(0.001, 1_000_000),
    help="How many become available per second. Default: all at once.",
)
@click.option("--force", is_flag=True, help="Also those that were redriven max_redrives times already.")
@click.option("--payload", metavar="JSON", help="For one ID: merge this into its payload.")
@click.option("--headers", metavar="JSON", help="For one ID: merge this into its headers.")
@click.option("--to", metavar="TOPIC", help="For one ID: put it into this topic.")
@click.option("--replace", is_flag=True, help="Replace the payload and headers instead of merging.")
@click.option("--dry-run", is_flag=True, help="Only print what would be redriven.")
@click.pass_obj
def redrive(
    session: CliSession,
    /,
    message_ids: tuple[int, ...],
    every: bool,
    rate: float | None,
    force: bool,
    payload: str | None,
    headers: str | None,
    to: str | None,
    replace: bool,
    dry_run: bool,
    **filters: Any,
) -> int:
    """Put dead messages back.

    Those with the given ids, those that match all filters, or all: each becomes a new message. A message is redriven once; its new
    message may be redriven again when it dies, up to max_redrives times. A message stays dead if a newer one with its key waits.
    """
    edit = {"payload": payload, "headers": headers, "to": to}
    chosen = any(value is not None for value in filters.values())
    if sum((bool(message_ids), chosen, every and not chosen)) != 1:
        raise click.UsageError("give either IDs, or filters, or --all")
    if any(value is not None for value in edit.values()):
        return _redrive_edited(session, _only(message_ids, rate, dry_run), edit, merge=not replace, force=force)
    if replace:
        raise click.UsageError("--replace needs --payload or --headers")
    with session.connect() as conn:
        pages = iter([message_ids]) if message_ids else _pages(conn, filters)
        if dry_run:
            return _preview(session, conn, pages, force=force)
        rows = redrive_in_batches(conn, REDRIVE, pages, rate=rate, force=force)
        return _conclude(session, rows, by_id=bool(message_ids))


def _only(message_ids: tuple[int, ...], rate: float | None, dry_run: bool) -> int:
    if len(message_ids) != 1 or rate is not None or dry_run:
        raise click.UsageError(
            "--payload, --headers and --to edit one message: give one ID, and neither --rate nor --dry-run"
        )
    return message_ids[0]


def _redrive_edited(
    session: CliSession, message_id: int, edit: dict[str, str | None], *, merge: bool, force: bool
) -> int:
    from pgrouse.jsonb import Raw, encode  # noqa: PLC0415

    texts = {name: None if (text := edit[name]) is None else encode(Raw(text), name) for name in ("payload", "headers")}
    values = {"id": message_id, "to": edit["to"], "merge": merge, "force": force, **texts}
    with session.connect() as conn:
        row: Any = conn.execute(EDITED, values).fetchone()
    return _conclude(session, [row], by_id=True)


def _pages(conn: psycopg.Connection, filters: dict[str, Any]) -> Iterator[list[int]]:
    """Select page by page, only messages that died before the start: what dies again meanwhile is not redriven again."""
    times: Any = conn.execute(TIMES, {name: filters[name] for name in ("since", "until")}).fetchone()
    since, until = times
    left, after = filters["limit"] or 2**62, None
    while left > 0:
        page = min(left, PAGE)
        ids = _page(conn, filters | {"since": since, "until": until, "page": page, "after": after})
        if ids:
            yield ids
        if len(ids) < page:
            return
        left, after = left - len(ids), ids[-1]


def _page(conn: psycopg.Connection, values: dict[str, str | int | datetime | None]) -> list[int]:
    with conn.transaction():
        conn.execute(READ_TIMEOUT)
        return [message_id for (message_id,) in conn.execute(FIND, values)]


def _conclude(session: CliSession, rows: Iterable[tuple[int, int | None, str]], *, by_id: bool) -> int:
    outcomes = report(session, rows, "archived_id", by_id=by_id)
    done = sum(outcomes[outcome] for outcome in REDRIVEN_OUTCOMES)
    if not by_id:
        session.output.say(
            f"redrove {plural(done, 'message')}" if outcomes else "no dead message matches: nothing was redriven"
        )
    not_done = by_id and any(outcomes[outcome] for outcome in REFUSED_OUTCOMES)
    return ExitCode.FOUND_A_PROBLEM if not_done else ExitCode.OK


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
    session.output.rows(columns, groups, "no dead message matches: nothing would be redriven")
    outcomes = Counter(row["outcome"] for row in found)
    done = sum(outcomes[outcome] for outcome in REDRIVEN_OUTCOMES)
    if groups:
        least = "at least " if len(found) == BOUND else ""
        session.output.say(f"would redrive {least}{plural(done, 'message')}: run it again without --dry-run")
    report_skipped(session, outcomes)
    return ExitCode.OK


def _would(conn: psycopg.Connection, ids: Any, force: bool) -> list[dict[str, Any]]:
    from psycopg.rows import dict_row  # noqa: PLC0415

    found: list[dict[str, Any]] = []
    for start in range(0, len(ids), BATCH):
        values = {"ids": list(ids[start : start + BATCH]), "force": force}
        found += conn.cursor(row_factory=dict_row).execute(WOULD, values).fetchall()
    return found


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
