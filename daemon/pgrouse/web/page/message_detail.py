"""One message as its page shows it: what is known of it, bounded in size, and its life as a list of events."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pgrouse.client.call import run_async
from pgrouse.client.calls.dead import lineage
from pgrouse.client.calls.monitoring.explain import explain
from pgrouse.client.calls.workflow import workflow
from pgrouse.client.message_state import DEAD, LIVE, WAITING
from pgrouse.client.queries.message import NEVER, find_logs, find_steps, read_shown
from pgrouse.client.queries.workflow import workflow_of
from pgrouse.crypto import envelope
from pgrouse.values.format import ShownProgress, harmless, show_age, show_progress
from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import Connection, Row, read_rows
from pgrouse.web.access.redaction import shown_json, shown_log
from pgrouse.web.page.json_view import hex_dump, pretty

# How much of each value is shown; all of it can be downloaded.
MAX_SHOWN_CHARS = 100_000
MAX_SHOWN_BYTES = 512
MAX_PROGRESS_CHARS = 200
# What can be edited in a page.
MAX_EDIT_CHARS = 200_000
MAX_LOG_CHARS = 20_000  # of each attempt
# A publish and its being available are read one after the other.
IMMEDIATE = timedelta(milliseconds=100)


@dataclass(frozen=True)
class TimelineEvent:
    """One thing in the life of a message.

    Attributes:
        at: when.
        title: what.
        kind: of the badge next to it.
        note: more of it, on one line.
        text: a traceback, or the like.
    """

    at: datetime
    title: str
    kind: str = ""
    note: str = ""
    text: str = ""


async def read(conn: Connection, message_id: int) -> Row | None:
    """Return the message; None if there is none."""
    return await run_async(conn, read_shown(message_id, chars=MAX_SHOWN_CHARS, bytes_=MAX_SHOWN_BYTES))


async def read_context(conn: Connection, message_id: int) -> dict[str, Any]:
    """Return why it is as it is, and where it comes from."""
    return {
        "reasons": await read_rows(conn, explain(message_id)),
        "lineage": await read_rows(conn, lineage(message_id)),
        "neighbours": await read_rows(conn, workflow(message_id)),
        "workflow_id": await run_async(conn, workflow_of(message_id)),
        "steps": await read_rows(conn, find_steps(message_id)),
        "logs": await read_rows(conn, find_logs(message_id)),
    }


def step(caller: Caller, topic: str, row: Row) -> Row:
    """Return what a step returned, as the caller sees it; of an encrypted result only that it is one."""
    result = shown_json(caller, topic, "step", row["result"])
    return row | {"result": envelope.describe_json(result) or result}


def log(caller: Caller, topic: str, row: Row) -> Row:
    """Return the end of the log lines of an attempt, as the caller sees them."""
    lines = shown_log(caller, topic, row["lines"])
    return row | {"lines": lines[-MAX_LOG_CHARS:], "is_cut": len(lines) > MAX_LOG_CHARS}


def contents(row: Row) -> dict[str, Any]:
    """Return what the message carries, laid out to be read."""
    shown: dict[str, Any] = {}
    for name in ("payload", "headers", "state_kept", "output"):
        if summary := envelope.describe_json(row[name]) if name in ("state_kept", "output") else None:
            shown[name] = {"text": summary, "is_cut": False}
        elif row[name] is not None:
            text, is_cut = pretty(row[name], MAX_SHOWN_CHARS)
            shown[name] = {"text": text, "is_cut": is_cut or len(row[name]) >= MAX_SHOWN_CHARS}
    if row["body_bytes"] is not None and (summary := envelope.describe(bytes(row["body"]), row["body_bytes"])):
        shown["body"] = {"text": summary, "is_cut": False}
    elif row["body_bytes"] is not None:
        shown["body"] = {"text": hex_dump(bytes(row["body"])), "is_cut": row["body_bytes"] > MAX_SHOWN_BYTES}
    return shown


def allowed_actions(row: Row, *, is_allowed: bool = True) -> dict[str, bool]:
    """Return which actions the message takes as it is now, from callers who may act; from others none."""
    state = row["state"]
    is_dead = state in DEAD and row["redriven_as"] is None
    is_small = (row["payload_bytes"] or 0) <= MAX_EDIT_CHARS
    # A payload that is written by hand would not be encrypted.
    is_encrypted = row["body"] is not None and envelope.read_header(bytes(row["body"])) is not None
    # An edit would replace what the page hides.
    is_whole = is_small and not is_encrypted and not row["is_redacted"]
    possible = {
        "retry": state in ("delayed", "retrying"),
        "signal": state in LIVE,
        "cancel": state in LIVE,
        "skip": state in WAITING,
        "edit": state in WAITING and is_whole,
        "redrive": is_dead,
        "redrive_edited": is_dead and is_whole,
    }
    return {action: is_allowed and is_able for action, is_able in possible.items()}


def timeline(row: Row) -> list[TimelineEvent]:
    """Return the life of a message, the oldest event first."""
    events = [TimelineEvent(row["created_at"], "published", note=_origin(row))]
    attempts = [_attempt(each, row["created_at"]) for each in _history(row)]
    # Each failed attempt moved it: for an archived message it is shown only if no attempt failed.
    if NEVER > row["available_at"] > row["created_at"] + IMMEDIATE and (row["state"] in WAITING or not attempts):
        events.append(TimelineEvent(row["available_at"], "due again" if attempts else "due"))
    events += attempts
    if row["state"] == "running":
        events += _lock(row)
    if row["archived_at"] is not None:
        events += _end(row)
    return sorted(events, key=lambda event: event.at)


def _origin(row: Row) -> str:
    if row["redriven_from"] is not None:
        return f"as a redrive of message {row['redriven_from']}"
    if row["dlq_moved_at"] is not None:
        return f"as the copy of a dead message of topic {row['original_topic']}"
    return ""


def _history(row: Row) -> list[dict[str, Any]]:
    try:
        history = json.loads(row["history"]) if row["history"] else []
    except (ValueError, RecursionError):
        return []
    return [each for each in history if isinstance(each, dict)] if isinstance(history, list) else []


def _attempt(each: dict[str, Any], otherwise: datetime) -> TimelineEvent:
    started, ended = _time(each.get("started")), _time(each.get("ended"))
    took = f" after {show_age(ended - started)}" if started and ended else ""
    unrun = "" if each.get("run") else ", never begun"
    outcome = str(each.get("outcome", "ended"))
    return TimelineEvent(
        ended or started or otherwise,
        f"attempt {each.get('attempt')} {outcome.replace('_', ' ')}",
        "bad" if outcome in ("failed", "lock_expired") else "info",
        f"by {harmless(str(each.get('worker')))}{took}{unrun}",
        harmless(str(each.get("error") or "")),
    )


def _lock(row: Row) -> list[TimelineEvent]:
    what = "claimed ahead" if row["prefetched"] else f"attempt {row['attempts']} began"
    events = [TimelineEvent(row["locked_at"], what, "info", f"by {harmless(row['worker'])}")]
    beat = row["lock_expires_at"] - timedelta(seconds=row["lock_duration_s"])
    if beat - row["locked_at"] > timedelta(seconds=1):
        events.append(TimelineEvent(beat, "last heartbeat", "info"))
    return [
        *events,
        TimelineEvent(row["lock_expires_at"], "the lock runs out", "warn", "unless a heartbeat extends it"),
    ]


def _end(row: Row) -> list[TimelineEvent]:
    events = []
    if row["locked_at"] is not None:
        events.append(
            TimelineEvent(
                row["locked_at"], f"attempt {row['attempts']} began", "info", f"by {harmless(row['worker'] or '')}"
            )
        )
    kind = "good" if row["state"] == "success" else "" if row["state"] == "cancelled" else "bad"
    took = f"after {show_age(row['archived_at'] - row['locked_at'])}" if row["locked_at"] else ""
    by = "" if row["locked_at"] or not row["worker"] else f"by {harmless(row['worker'])}"
    events.append(
        TimelineEvent(
            row["archived_at"], row["state"].replace("_", " "), kind, took or by, harmless(row["error"] or "")
        )
    )
    return events


def _time(text: Any) -> datetime | None:
    try:
        at = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    # A history that was written by hand may name no zone.
    return at if at is None or at.tzinfo else at.replace(tzinfo=UTC)


def progress(reported: str | None) -> ShownProgress | None:
    """Return the progress that a handler reported, as JSON, at a length for a page."""
    shown = show_progress(reported)
    return None if shown is None else shown._replace(text=harmless(shown.text[:MAX_PROGRESS_CHARS]))
