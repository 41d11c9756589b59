"""One message in full, live or archived."""

from __future__ import annotations

import json
import textwrap
from datetime import datetime, timedelta
from typing import Any

import click

from pgrouse.cli.command import Session
from pgrouse.cli.message import STATE
from pgrouse.cli.output import harmless, show_age, show_ago
from pgrouse.errors import ExitCode
from pgrouse.jsonb import Raw

DEAD = ("rejected", "failed", "lock_expired", "expired")
LONGEST = 20_000  # characters of one value that a terminal is given

# What analysts may read of both tables, then what is only for those who may read contents. NULL: the other table has no such column.
COLUMNS = {
    "topic": ("m.topic", "a.topic"),
    "state": (STATE, "a.result"),
    "channel": ("m.channel", "a.channel"),
    "key": ("m.key", "a.key"),
    "priority": ("m.priority", "a.priority"),
    "created_at": ("m.created_at", "a.created_at"),
    "available_at": ("m.available_at", "a.available_at"),
    "attempts": ("m.attempts", "a.attempts"),
    "worker": ("m.locked_by", "a.handled_by"),
    "locked_at": ("m.locked_at", "a.locked_at"),
    "lock_expires_at": ("m.lock_expires_at", "NULL"),
    "archived_at": ("NULL", "a.archived_at"),
    "redriven_from": ("NULL::bigint", "a.redriven_from"),
    "error_fingerprint": ("NULL", "a.error_fingerprint"),
    "history": ("m.history::text", "a.history::text"),
    "error": ("NULL", "a.error"),
}
CONTENTS = {
    "redriven_from": ("m.redriven_from", "a.redriven_from"),
    "redriven_as": ("NULL", "(SELECT r.message_id FROM messages.redrive_log AS r WHERE r.archived_id = a.id)"),
    "expires_at": ("m.expires_at", "a.expires_at"),
    "max_attempts": ("m.max_attempts", "a.max_attempts"),
    "original_topic": ("m.original_topic", "a.original_topic"),
    "headers": ("m.headers::text", "a.headers::text"),
    "state_kept": ("m.state::text", "a.state::text"),
    "progress": ("m.progress::text", "a.progress::text"),
    "output": ("NULL", "a.output::text"),
    "payload": ("m.payload::text", "a.payload::text"),
    "body": ("m.body", "a.body"),
}
JSON_COLUMNS = ("history", "headers", "state_kept", "progress", "output", "payload")

# The two times of a message that was not delayed are read one after the other.
AT_ONCE = timedelta(milliseconds=100)


def _query(contents: bool) -> str:
    columns = COLUMNS | CONTENTS if contents else COLUMNS
    live = ", ".join(f"{expression} AS {name}" for name, (expression, _) in columns.items())
    ended = ", ".join(f"{expression} AS {name}" for name, (_, expression) in columns.items())
    return (
        f"SELECT m.id, {live} FROM messages.message AS m WHERE m.id = %(id)s "  # noqa: S608 - constants only
        f"UNION ALL SELECT a.id, {ended} FROM messages.message_archive AS a WHERE a.id = %(id)s"
    )


def show_message(session: Session, message_id: int, *, contents: bool, only_dead: bool = False) -> int:
    """Print a message. contents: its payload too; only_dead: refuse one that is not dead."""
    from psycopg.rows import dict_row  # noqa: PLC0415

    with session.read() as conn:
        row = conn.cursor(row_factory=dict_row).execute(_query(contents).encode(), {"id": message_id}).fetchone()
        clock: Any = conn.execute("SELECT clock_timestamp()").fetchone()
    if row is None:
        session.output.problem(f"there is no message {message_id}: it was never published, or its day left the archive")
        return ExitCode.FOUND_A_PROBLEM
    if only_dead and row["state"] not in DEAD:
        session.output.problem(
            f"message {message_id} is not dead, it is {row['state']}: `pgrouse message show {message_id}`"
        )
        return ExitCode.FOUND_A_PROBLEM
    if session.as_json:
        session.output.record(
            {name: Raw(value) if name in JSON_COLUMNS and value is not None else value for name, value in row.items()}
        )
    else:
        _print(row, clock[0])
    return ExitCode.OK


def _print(row: dict[str, Any], now: datetime) -> None:
    click.echo(f"{_bold('message ' + str(row['id']))}  {row['topic']}  {_bold(row['state'])}")
    for name, text in _facts(row, now):
        label = f"{name} "
        click.echo(f"  {_dim(f'{label:<13}')}{harmless(text)}")
    for attempt in _attempts(row):
        number = f"attempt {attempt.get('attempt')}"
        click.echo(f"  {_dim(f'{number:<13}')}{harmless(_attempt(attempt))}")
    for name in ("error", "headers", "state_kept", "progress", "output", "payload", "body"):
        if row.get(name) is not None:
            click.echo(
                f"  {_dim(name.replace('state_kept', 'checkpoint'))}\n{textwrap.indent(harmless(_long(row[name], name)), '    ')}"
            )


def _facts(row: dict[str, Any], now: datetime) -> list[tuple[str, str]]:
    """Return the short values of a message, named for people; those that are not set are left out."""
    limit = row.get("max_attempts")
    facts = {
        "channel": row["channel"],
        "key": row["key"],
        "priority": row["priority"],
        "published": _moment(row["created_at"], now),
        "available": _moment(row["available_at"], now) if row["available_at"] - row["created_at"] > AT_ONCE else None,
        "expires": _moment(row.get("expires_at"), now),
        "attempts": f"{row['attempts']}" + (f" of {limit}" if limit else ""),
        "worker": row["worker"],
        "locked": _moment(row["locked_at"], now),
        "locked until": _moment(row["lock_expires_at"], now),
        "ended": _moment(row["archived_at"], now),
        "fingerprint": row["error_fingerprint"],
        "redriven from": row["redriven_from"],
        "redriven as": row.get("redriven_as"),
        "first topic": row.get("original_topic"),
    }
    return [(name, str(value)) for name, value in facts.items() if value is not None]


def _moment(at: datetime | None, now: datetime) -> str | None:
    return None if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S%z} ({show_ago(now - at)})"


def _attempts(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the ended attempts: those of the history, and the one that ended the message, which the archive row itself describes."""
    attempts: list[dict[str, Any]] = json.loads(row["history"] or "[]")
    if row["archived_at"] is None or row["locked_at"] is None:
        return attempts
    started, ended = row["locked_at"].isoformat(), row["archived_at"].isoformat()
    last = {"attempt": row["attempts"], "worker": row["worker"], "started": started, "ended": ended}
    return [*attempts, {**last, "outcome": row["state"], "error": row["error"]}]


def _attempt(attempt: dict[str, Any]) -> str:
    """Write one entry of the history on one line."""
    started, ended = (
        datetime.fromisoformat(attempt[name]) if attempt.get(name) else None for name in ("started", "ended")
    )
    took = f" after {show_age(max(ended - started, timedelta(0)))}" if started and ended else ""
    error = (attempt.get("error") or "").strip().splitlines()
    return f"{attempt.get('outcome')}{took} by {attempt.get('worker')}" + (f": {error[-1]}" if error else "")


def _long(value: str | bytes, name: str) -> str:
    text = _bytes(value) if isinstance(value, bytes) else value if name == "error" else _pretty(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n… {len(text) - LONGEST:,} characters more: see --json"


def _pretty(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text  # JSON that Python cannot hold


def _bytes(value: bytes) -> str:
    shown = repr(value[:200])[2:-1]
    return f"{len(value):,} bytes: {shown}" + ("…" if len(value) > 200 else "")  # noqa: PLR2004


def _bold(text: str) -> str:
    return click.style(harmless(text), bold=True)


def _dim(text: str) -> str:
    return click.style(text, dim=True)
