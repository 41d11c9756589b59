"""Shows one message in full, live or archived."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import click

from pgrouse.client.call import run
from pgrouse.client.calls.dead import lineage
from pgrouse.client.calls.monitoring.explain import Reason, explain
from pgrouse.client.calls.workflow import Neighbour, workflow
from pgrouse.client.message_state import DEAD
from pgrouse.client.queries.clock import now
from pgrouse.client.queries.message import JSON_COLUMNS, NEVER, find_logs, find_steps, read_message
from pgrouse.config.duration import show
from pgrouse.crypto import envelope
from pgrouse.crypto.configured_cipher import require_cipher
from pgrouse.errors import ExitCode
from pgrouse.terminal.command import CliSession
from pgrouse.values.error_line import last_line
from pgrouse.values.format import harmless, show_age, show_ago, show_progress
from pgrouse.values.jsonb import Raw

LONGEST = 20_000  # characters of one value that a terminal is given
LOG_LINES = 50  # of each attempt, for a terminal

# The two times of a message that was not delayed differ by less than this.
AT_ONCE = timedelta(milliseconds=100)


def show_message(
    session: CliSession, message_id: int, *, contents: bool, only_dead: bool = False, decrypt: bool = False
) -> int:
    """Print a message.

    contents: its payload too; only_dead: refuse one that is not dead, and tell where it comes from; decrypt: as it was
    published.
    """
    with session.read() as conn:
        row = run(conn, read_message(message_id, contents=contents))
        clock = run(conn, now())
        if row is not None and only_dead:
            row["lineage"] = [asdict(each) for each in run(conn, lineage(message_id))]
        if row is not None:
            neighbours = run(conn, workflow(message_id))
            for side in ("before", "after"):
                row[side] = [_without_direction(each) for each in neighbours if each.direction == side]
            row["waits_for"] = waits_for(run(conn, explain(message_id)))
            row["steps"] = [asdict(each) for each in run(conn, find_steps(message_id))] if contents else []
            row["logs"] = [asdict(each) for each in run(conn, find_logs(message_id))] if contents else []
    if row is None:
        session.problem(f"there is no message {message_id}: it was never published, or was deleted from the archive")
        return ExitCode.FOUND_A_PROBLEM
    if only_dead and row["state"] not in DEAD:
        session.problem(f"message {message_id} is not dead, it is {row['state']}: `pgrouse message show {message_id}`")
        return ExitCode.FOUND_A_PROBLEM
    if decrypt:
        _decrypt(session, row)
    _name_envelopes(row)
    for step in row["steps"]:
        step["result"] = envelope.describe_json(step["result"]) or step["result"]
    if session.as_json:
        session.record(
            {name: Raw(value) if name in JSON_COLUMNS and value is not None else value for name, value in row.items()}
        )
    else:
        _print(row, clock)
    return ExitCode.OK


def _decrypt(session: CliSession, row: dict[str, Any]) -> None:
    """Replace the envelopes by their decrypted contents.

    Raises:
        EncryptionKeyMissing, DecryptionFailed: it cannot be.
    """
    cipher = require_cipher(session.config)
    if row["body"] is not None and envelope.read_header(row["body"]) is not None:
        kind, data = cipher.decrypt(row["body"])
        row["payload"], row["body"] = (data.decode(), None) if kind is envelope.ContentKind.JSON else (None, data)
    for name, kind in (("state_kept", envelope.ContentKind.STATE), ("output", envelope.ContentKind.OUTPUT)):
        if row[name] is not None:
            row[name] = cipher.decrypt_json(None, row[name], kind)


def _name_envelopes(row: dict[str, Any]) -> None:
    """Replace each envelope by a description."""
    if row.get("body") is not None and (said := envelope.describe(row["body"])):
        row["body"] = said
    for name in ("state_kept", "output"):
        if said := envelope.describe_json(row.get(name)):
            row[name] = json.dumps(said)


def _print(row: dict[str, Any], now: datetime) -> None:
    click.echo(f"{_bold('message ' + str(row['id']))}  {row['topic']}  {_bold(row['state'])}")
    for name, text in _facts(row, now):
        label = f"{name} "
        click.echo(f"  {_dim(f'{label:<13}')}{harmless(text)}")
    for name in ("before", "after"):
        for each in row[name]:
            label = "comes after " if name == "before" else "followed by "
            click.echo(f"  {_dim(f'{label:<13}')}{harmless(_dependency_text(each))}")
    for step in row["steps"]:
        click.echo(f"  {_dim('step         ')}{harmless(_step(step))}")
    for attempt in _attempts(row):
        number = f"attempt {attempt.get('attempt')}"
        click.echo(f"  {_dim(f'{number:<13}')}{harmless(_attempt(attempt))}")
    for logged in row["logs"]:
        click.echo(f"  {_dim(_log_title(logged, now))}\n{textwrap.indent(harmless(_last_lines(logged)), '    ')}")
    for name in ("error", "headers", "state_kept", "output", "payload", "body"):
        if row.get(name) is not None:
            text = textwrap.indent(harmless(_long(row[name], name)), "    ")
            click.echo(f"  {_dim(name.replace('state_kept', 'checkpoint'))}\n{text}")


def _facts(row: dict[str, Any], now: datetime) -> list[tuple[str, str]]:
    """Return the short values of a message, named for people; those that are not set are left out."""
    limit, progress = row.get("max_attempts"), show_progress(row.get("progress"))
    facts = {
        "channel": row["channel"],
        "key": row["key"],
        "priority": row["priority"],
        "published": _time_text(row["created_at"], now),
        "available": _time_text(row["available_at"], now)
        if row["available_at"] - row["created_at"] > AT_ONCE and row["state"] != "blocked"
        else None,
        "expires": _time_text(row.get("expires_at"), now) if row.get("expires_at") != NEVER else None,
        "waits for": _event_text(row["waits_for"], now),
        "attempts": f"{row['attempts']}" + (f" of {limit}" if limit else ""),
        "timeout": row.get("timeout") and f"{show(row['timeout'])}, its own",
        "backoff": row.get("backoff") and f"{row['backoff']}, its own",
        "retention": row.get("retention") and f"{show(row['retention'])}, its own",
        "runs": row["runs"] if row["runs"] != row["attempts"] else None,
        "progress": progress and progress.text,
        "worker": row["worker"],
        "locked": _time_text(row["locked_at"], now),
        "locked until": _time_text(row["lock_expires_at"], now),
        "ended": _time_text(row["archived_at"], now),
        "fingerprint": row["error_fingerprint"],
        "redriven from": row["redriven_from"],
        "batch": row["batch_id"],
        "redriven as": row.get("redriven_as"),
        "first topic": row.get("original_topic"),
        "lineage": _lineage(row.get("lineage", [])),
        "dead letter": next((f"{m['id']} ({_state(m)})" for m in row.get("lineage", []) if m["kind"] == "copy"), None),
    }
    return [(name, str(value)) for name, value in facts.items() if value is not None]


def waits_for(reasons: list[Reason]) -> dict[str, Any] | None:
    """Return the event that a message waits for, and until when, as explain tells it; None = it waits for none."""
    return next((each.detail for each in reasons if each.code == "waiting_for_event"), None)


def _event_text(waited: dict[str, Any] | None, now: datetime) -> str | None:
    if waited is None:
        return None
    until = waited["until"]
    return f"event {waited['event']}" + (f", until {_time_text(datetime.fromisoformat(until), now)}" if until else "")


def _without_direction(each: Neighbour) -> dict[str, Any]:
    return {name: value for name, value in asdict(each).items() if name != "direction"}


def _dependency_text(each: dict[str, Any]) -> str:
    state = each["state"] or "it is no longer stored"
    return f"{each['id']} {each['topic'] or ''} ({state}; if it ends badly: {each['after_failed']})".replace("  ", " ")


def _step(step: dict[str, Any]) -> str:
    """Write a step on one line."""
    result: str = step["result"]
    shown = f"{result[:200]}…" if len(result) > 200 else result  # noqa: PLR2004
    return f"{step['name']} by attempt {step['attempt']}: {shown}"


def _log_title(logged: dict[str, Any], now: datetime) -> str:
    return f"log of attempt {logged['attempt']}, {_time_text(logged['locked_at'], now)}"


def _last_lines(logged: dict[str, Any]) -> str:
    """Return the last lines of an attempt, and above them how many more there were."""
    lines = logged["lines"].split("\n")
    earlier = f"{len(lines) - LOG_LINES:,} more, see --json; " if len(lines) > LOG_LINES else ""
    cut = f"{logged['left_out']:,} not kept" if logged["left_out"] else ""
    above = f"{earlier}{cut}".removesuffix("; ")
    return "\n".join([*([f"… before: {above}"] if above else []), *lines[-LOG_LINES:]])


def _lineage(members: list[dict[str, Any]]) -> str | None:
    """Format the chain of redrives, the oldest first; None if there was none."""
    circle = [m for m in members if m["kind"] != "copy"]
    return " → ".join(f"{m['id']} ({_state(m)})" for m in circle) if len(circle) > 1 else None


def _state(member: dict[str, Any]) -> str:
    return "this one" if member["kind"] == "this" else member["state"] or "no longer archived"


def _time_text(at: datetime | None, now: datetime) -> str | None:
    return None if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S%z} ({show_ago(now - at)})"


def _attempts(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the ended attempts: those of the history, and the one that ended the message.

    The row of the archive itself describes the last one.
    """
    attempts: list[dict[str, Any]] = json.loads(row["history"] or "[]")
    if row["archived_at"] is None or row["locked_at"] is None:
        return attempts
    started, ended = row["locked_at"].isoformat(), row["archived_at"].isoformat()
    last = {"attempt": row["attempts"], "run": row["runs"], "worker": row["worker"], "started": started, "ended": ended}
    return [*attempts, {**last, "outcome": row["state"], "error": row["error"]}]


def _attempt(attempt: dict[str, Any]) -> str:
    """Write one entry of the history on one line."""
    started, ended = (
        datetime.fromisoformat(attempt[name]) if attempt.get(name) else None for name in ("started", "ended")
    )
    took = f" after {show_age(max(ended - started, timedelta(0)))}" if started and ended else ""
    error = last_line(attempt.get("error") or "")
    unrun = "" if attempt.get("run") else ", never begun,"
    return f"{attempt.get('outcome')}{took}{unrun} by {attempt.get('worker')}" + (f": {error}" if error else "")


def _long(value: str | bytes, name: str) -> str:
    text = _bytes(value) if isinstance(value, bytes) else value if name in ("error", "body") else _pretty(value)
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
