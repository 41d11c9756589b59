"""All that is known of one message, live or archived, by one statement."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pydantic_core import from_json

from pgrouse.client.call import Call, first_row

# As in the view messages.state; this reads single columns, which analysts may.
STATE = """
  CASE
    WHEN m.claim_id IS NOT NULL THEN 'running'
    WHEN m.available_at <= clock_timestamp() THEN 'ready'
    WHEN m.history -> -1 ->> 'outcome' IN ('failed', 'lock_expired') THEN 'retrying'
    ELSE 'delayed'
  END"""

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
    "runs": ("m.runs", "a.runs"),
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
    "headers": ("messages.display_json(m.headers)", "messages.display_json(a.headers)"),
    "state_kept": ("messages.display_json(m.state)", "messages.display_json(a.state)"),
    "progress": ("messages.display_json(m.progress)", "messages.display_json(a.progress)"),
    "output": ("NULL", "messages.display_json(a.output)"),
    "payload": ("messages.display_json(m.payload)", "messages.display_json(a.payload)"),
    "body": ("m.body", "a.body"),
}
JSON_COLUMNS = ("history", "headers", "state_kept", "progress", "output", "payload")


# What its steps returned, for those who may read contents.
STEPS = """
  SELECT s.name::text AS name, s.attempt, s.kept_at, left(s.result::text, 2000) AS result
  FROM messages.step AS s WHERE s.message_id = %(id)s ORDER BY s.kept_at, s.name LIMIT 1000"""
# Until it is released, the time of a message that waits for others.
NEVER = datetime(9000, 1, 1, tzinfo=UTC)


def query(*, contents: bool) -> str:
    """Return the statement for the message %(id)s. contents: with what only those may read who may read payloads; JSON is text."""
    columns = COLUMNS | CONTENTS if contents else COLUMNS
    live = ", ".join(f"{expression} AS {name}" for name, (expression, _) in columns.items())
    ended = ", ".join(f"{expression} AS {name}" for name, (_, expression) in columns.items())
    return (
        f"SELECT m.id, {live} FROM messages.message AS m WHERE m.id = %(id)s "  # noqa: S608 - constants only
        f"UNION ALL SELECT a.id, {ended} FROM messages.message_archive AS a WHERE a.id = %(id)s"
    )


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """All that is known of a message. What is about contents is None for those who may not read them.

    Attributes:
        state: ready, delayed, retrying or running; of a message that ended, its result.
        worker: which one has it, or had it last.
        history_json: the ended attempts; those with `_json` are decoded by properties of the same name without it.
        state_kept_json: the checkpoint of its handler.
    """

    id: int
    topic: str
    state: str
    channel: str | None
    key: str | None
    priority: int
    created_at: datetime
    available_at: datetime
    attempts: int
    runs: int
    worker: str | None
    locked_at: datetime | None
    lock_expires_at: datetime | None
    archived_at: datetime | None
    redriven_from: int | None
    error_fingerprint: str | None
    history_json: str | None
    error: str | None
    redriven_as: int | None = None
    expires_at: datetime | None = None
    max_attempts: int | None = None
    original_topic: str | None = None
    headers_json: str | None = None
    state_kept_json: str | None = None
    progress_json: str | None = None
    output_json: str | None = None
    payload_json: str | None = None
    body: bytes | None = None

    @property
    def history(self) -> Any:
        """The ended attempts."""
        return _decoded(self.history_json)

    @property
    def headers(self) -> Any:
        """The headers."""
        return _decoded(self.headers_json)

    @property
    def state_kept(self) -> Any:
        """The checkpoint of its handler."""
        return _decoded(self.state_kept_json)

    @property
    def progress(self) -> Any:
        """The progress that its handler noted."""
        return _decoded(self.progress_json)

    @property
    def output(self) -> Any:
        """What its handler returned."""
        return _decoded(self.output_json)

    @property
    def payload(self) -> Any:
        """The payload."""
        return _decoded(self.payload_json)


def _decoded(text: str | None) -> Any:
    return None if text is None else from_json(text)


def find_message(message_id: int, *, contents: bool = True) -> Call[MessageRecord | None]:
    """Read a message, live or archived; contents: as of query."""
    return Call(query(contents=contents).encode(), {"id": message_id}, partial(first_row, MessageRecord))
