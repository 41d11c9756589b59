"""One message as its page shows it: what is known of it, bounded in size, and its life as a list of events."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pgrouse.client.calls.dead import lineage
from pgrouse.client.calls.explain import explain
from pgrouse.client.calls.workflow import workflow
from pgrouse.client.queries.message import NEVER, STATE, STEPS
from pgrouse.crypto import envelope
from pgrouse.format import harmless, show_age
from pgrouse.web import search
from pgrouse.web.database_pool import Connection, Row, read_rows
from pgrouse.web.json_view import hex_dump, pretty

# Of each value so many characters are read, and of bytes so many bytes; all of it can be downloaded.
MAX_SHOWN_CHARS = 100_000
MAX_SHOWN_BYTES = 512
# What can be edited in a page.
MAX_EDIT_CHARS = 200_000
# A publish and its being available are read one after the other.
IMMEDIATE = timedelta(milliseconds=100)

# Payload and body are not among them: what is deep or large is read in part only.
COLUMNS = (
    *("id", "topic", "channel", "key", "priority", "state", "headers", "checkpoint", "progress", "output"),
    *(
        "created_at",
        "available_at",
        "expires_at",
        "attempts",
        "runs",
        "prefetched",
        "worker",
        "locked_at",
        "lock_expires_at",
    ),
    *(
        "history",
        "original_topic",
        "redriven_from",
        "redrives",
        "archived_at",
        "error",
        "error_fingerprint",
        "dlq_moved_at",
    ),
)
# The text of a payload is made once: OFFSET 0 keeps the planner from writing the cast wherever it is used.
READ = f"""
  SELECT {", ".join(f"r.{name}" for name in COLUMNS)}, left(p.text, {MAX_SHOWN_CHARS}) AS payload, octet_length(p.text) AS payload_bytes, md5(p.text) AS payload_md5,
         substring(r.body FOR {MAX_SHOWN_BYTES}) AS body_shown, octet_length(r.body) AS body_bytes, md5(r.body) AS body_md5,
         (SELECT extract(epoch FROM coalesce(t.lock_duration, d.lock_duration))::float8
          FROM messages.topic AS d LEFT JOIN messages.topic AS t ON t.topic = r.topic WHERE d.topic = '*') AS lock_duration_s,
         (SELECT coalesce(nullif(r.max_own, 0), nullif(coalesce(t.max_attempts, d.max_attempts), 0))
          FROM messages.topic AS d LEFT JOIN messages.topic AS t ON t.topic = r.topic WHERE d.topic = '*') AS max_attempts,
         (SELECT l.message_id FROM messages.redrive_log AS l WHERE l.archived_id = r.id) AS redriven_as
  FROM (
    SELECT m.id, m.topic::text AS topic, m.channel::text AS channel, m.key::text AS key, m.priority::int AS priority, {STATE} AS state,
           m.payload::jsonb AS json, m.body::bytea AS body, left(messages.display_json(m.headers), {MAX_SHOWN_CHARS}) AS headers, left(messages.display_json(m.state), {MAX_SHOWN_CHARS}) AS checkpoint,
           left(messages.display_json(m.progress), 2000) AS progress, NULL::text AS output, m.created_at::timestamptz AS created_at,
           m.available_at::timestamptz AS available_at, m.expires_at::timestamptz AS expires_at, m.attempts::int AS attempts, m.runs::int AS runs,
           m.max_attempts::int AS max_own, m.prefetched, m.locked_by AS worker, m.locked_at, m.lock_expires_at::timestamptz AS lock_expires_at,
           m.history::text AS history, m.original_topic, m.redriven_from, m.redrives, NULL::timestamptz AS archived_at, NULL::text AS error,
           NULL::text AS error_fingerprint, m.dlq_moved_at
    FROM messages.message AS m WHERE m.id = %(id)s
    UNION ALL
    SELECT a.id, a.topic, a.channel, a.key, a.priority, a.result, a.payload, a.body, left(messages.display_json(a.headers), {MAX_SHOWN_CHARS}), left(messages.display_json(a.state), {MAX_SHOWN_CHARS}),
           left(messages.display_json(a.progress), 2000), left(messages.display_json(a.output), {MAX_SHOWN_CHARS}), a.created_at, a.available_at, a.expires_at, a.attempts, a.runs,
           a.max_attempts, NULL, a.handled_by, a.locked_at, NULL, a.history::text, a.original_topic, a.redriven_from, a.redrives,
           a.archived_at, a.error, a.error_fingerprint, a.dlq_moved_at
    FROM messages.message_archive AS a WHERE a.id = %(id)s
  ) AS r
  LEFT JOIN LATERAL (SELECT messages.display_json(r.json) AS text OFFSET 0) AS p ON true
  LIMIT 1""".encode()  # noqa: S608 - constants only


@dataclass(frozen=True)
class TimelineEvent:
    """One thing in the life of a message.

    Attributes:
        at: when.
        title: what.
        kind: of the badge beside it.
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
    return await (await conn.execute(READ, {"id": message_id})).fetchone()


async def read_context(conn: Connection, message_id: int) -> dict[str, list[Row]]:
    """Return why it is as it is, and where it comes from."""
    return {
        "reasons": await read_rows(conn, explain(message_id)),
        "lineage": await read_rows(conn, lineage(message_id)),
        "neighbours": await read_rows(conn, workflow(message_id)),
        "steps": await _steps(conn, message_id),
    }


async def _steps(conn: Connection, message_id: int) -> list[Row]:
    """Return what its steps returned; of an encrypted result only that it is one."""
    rows = await (await conn.execute(STEPS.encode(), {"id": message_id})).fetchall()
    return [row | {"result": envelope.describe_json(row["result"]) or row["result"]} for row in rows]


def contents(row: Row) -> dict[str, Any]:
    """Return what the message carries, laid out to be read."""
    shown: dict[str, Any] = {}
    for name in ("payload", "headers", "checkpoint", "output"):
        if summary := envelope.describe_json(row[name]) if name in ("checkpoint", "output") else None:
            shown[name] = {"text": summary, "is_cut": False}
        elif row[name] is not None:
            text, is_cut = pretty(row[name], MAX_SHOWN_CHARS)
            shown[name] = {"text": text, "is_cut": is_cut or len(row[name]) >= MAX_SHOWN_CHARS}
    if row["body_bytes"] is not None and (summary := envelope.describe(bytes(row["body_shown"]), row["body_bytes"])):
        shown["body"] = {"text": summary, "is_cut": False}
    elif row["body_bytes"] is not None:
        shown["body"] = {"text": hex_dump(bytes(row["body_shown"])), "is_cut": row["body_bytes"] > MAX_SHOWN_BYTES}
    return shown


def allowed_actions(row: Row, *, is_allowed: bool = True) -> dict[str, bool]:
    """Return which actions the message takes as it is now, from callers who may act; from others none."""
    state = row["state"]
    is_dead = state in search.DEAD and row["redriven_as"] is None
    is_small = (row["payload_bytes"] or 0) <= MAX_EDIT_CHARS
    # What is written by hand would not be encrypted.
    is_encrypted = row["body_shown"] is not None and envelope.read_header(bytes(row["body_shown"])) is not None
    possible = {
        # What comes after others waits for no time.
        "retry": state in ("delayed", "retrying") and row["available_at"] < NEVER,
        "cancel": state in search.LIVE,
        "skip": state in search.WAITING,
        "edit": state in search.WAITING and is_small and not is_encrypted,
        "redrive": is_dead,
        "redrive_edited": is_dead and is_small and not is_encrypted,
    }
    return {action: is_allowed and is_able for action, is_able in possible.items()}


def timeline(row: Row) -> list[TimelineEvent]:
    """Return the life of a message, the oldest event first."""
    events = [TimelineEvent(row["created_at"], "published", note=_origin(row))]
    attempts = [_attempt(each, row["created_at"]) for each in _history(row)]
    # Each failed attempt moved it: for an archived message it is shown only if no attempt failed.
    if NEVER > row["available_at"] > row["created_at"] + IMMEDIATE and (row["state"] in search.WAITING or not attempts):
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


def progress(row: Row) -> dict[str, Any] | None:
    """Return the progress that a handler reported: `text`, and `share` of 100 if it is known."""
    if row["progress"] is None:
        return None
    try:
        summary = json.loads(row["progress"])
    except (ValueError, RecursionError):
        summary = None
    if (
        not isinstance(summary, dict)
        or not isinstance(done := summary.get("done"), int | float)
        or isinstance(done, bool)
    ):
        return {"text": harmless(row["progress"][:200]), "share": None}
    total = summary.get("total")
    if not isinstance(total, int | float) or isinstance(total, bool) or total <= 0:
        total = None
    words = [f"{done:,}", f"of {total:,}" if total else "", str(summary.get("unit") or "")[:50]]
    share = _share(done, total) if total else None
    return {"text": harmless(" ".join(filter(None, words))), "share": share}


def _share(done: float, total: float) -> float | None:
    """Return how many percent it is; whole numbers may be larger than any float."""
    try:
        return max(0.0, min(100.0, 100 * done / total))
    except OverflowError:
        return None
