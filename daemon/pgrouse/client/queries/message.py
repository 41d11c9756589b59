"""Messages, live or archived: one with all that is known of it, lists, and parts of listed ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from pgrouse.client.call import Call, Rows, decoded, first, query_call, select_call
from pgrouse.client.calls.monitoring.search import ListedMessage

Columns = Mapping[str, tuple[str, str]]

# The time is read once for a statement.
STATE = """messages.live_state(
  m.id, m.topic, m.channel, m.claim_id, m.available_at, m.history, (SELECT messages.now()))"""

# What analysts may read of both tables, then what is only for those who may read contents. NULL: the other table has no
# such column.
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
    "redriven_from": ("m.redriven_from", "a.redriven_from"),
    "batch_id": ("m.batch_id", "a.batch_id"),
    "error_fingerprint": ("NULL", "a.error_fingerprint"),
    "history": ("m.history::text", "a.history::text"),
    "error": ("NULL", "a.error"),
}
CONTENTS = {
    "redriven_as": ("NULL", "(SELECT r.message_id FROM messages.redrive_log AS r WHERE r.archived_id = a.id)"),
    "expires_at": ("m.expires_at", "a.expires_at"),
    "max_attempts": ("m.max_attempts", "a.max_attempts"),
    "timeout": ("m.timeout::interval", "a.timeout"),
    "backoff": ("m.backoff::text", "a.backoff::text"),
    "retention": ("m.retention::interval", "a.retention"),
    "original_topic": ("m.original_topic", "a.original_topic"),
    "headers": ("messages.display_json(m.headers)", "messages.display_json(a.headers)"),
    "state_kept": ("messages.display_json(m.state)", "messages.display_json(a.state)"),
    "progress": ("messages.display_json(m.progress)", "messages.display_json(a.progress)"),
    "output": ("NULL", "messages.display_json(a.output)"),
    "payload": ("messages.display_json(m.payload)", "messages.display_json(a.payload)"),
    "body": ("m.body", "a.body"),
}
JSON_COLUMNS = ("history", "backoff", "headers", "state_kept", "progress", "output", "payload")
# What only a page shows.
OTHERS = {
    "prefetched": ("m.prefetched", "NULL"),
    "redrives": ("m.redrives", "a.redrives"),
    "dlq_moved_at": ("m.dlq_moved_at", "a.dlq_moved_at"),
}
# Its steps, for those who may read contents.
STEPS = """
  SELECT s.name::text AS name, s.attempt, s.kept_at, left(s.result::text, 2000) AS result
  FROM messages.step AS s WHERE s.message_id = %(id)s"""
# Until it is released, the time of a message that waits for others.
NEVER = datetime(9000, 1, 1, tzinfo=UTC)


def _select(columns: Columns, table: int) -> str:
    """Return what to select of a table: 0 = messages that have not ended, 1 = the archive."""
    return ", ".join(f"{expressions[table]} AS {name}" for name, expressions in columns.items())


def _query(columns: Columns) -> str:
    return (
        f"SELECT m.id, {_select(columns, 0)} "  # noqa: S608 - constants only
        "FROM messages.message AS m WHERE m.id = %(id)s "
        f"UNION ALL SELECT a.id, {_select(columns, 1)} FROM messages.message_archive AS a WHERE a.id = %(id)s"
    )


# Only the beginning of long values is read. OFFSET 0 keeps the planner from writing the text of a payload out wherever
# it is used.
BOUNDED = {
    **{name: f"r.{name}" for name in ("id", *(COLUMNS | CONTENTS | OTHERS))},
    **{name: f"left(r.{name}, %(chars)s)" for name in ("headers", "state_kept", "output", "payload")},
    "progress": "left(r.progress, 2000)",
    "body": "substring(r.body FOR %(bytes)s)",
    "payload_bytes": "octet_length(r.payload)",
    "payload_md5": "md5(r.payload)",
    "body_bytes": "octet_length(r.body)",
    "body_md5": "md5(r.body)",
    "lock_duration_s": "extract(epoch FROM coalesce(t.lock_duration, d.lock_duration))::float8",
    "max_attempts": "coalesce(nullif(r.max_attempts, 0), nullif(coalesce(t.max_attempts, d.max_attempts), 0))",
}
SHOWN = f"""
  SELECT {", ".join(f"{expression} AS {name}" for name, expression in BOUNDED.items())}
  FROM ({_query(COLUMNS | CONTENTS | OTHERS)} OFFSET 0) AS r
  JOIN messages.inherited_policy AS d ON d.topic = messages.inherits_from(r.topic)
  LEFT JOIN messages.topic AS t ON t.topic = r.topic LIMIT 1"""  # noqa: S608 - constants only
# One branch per index of the table, each bounded: a topic is found by its index, no topic by the primary key.
BRANCHES = (
    "m.claim_id IS NOT NULL",
    "m.claim_id IS NULL AND m.channel IS NULL",
    "m.claim_id IS NULL AND m.channel IS NOT NULL",
)
LISTED = {name: COLUMNS[name] for name in ListedMessage.__dataclass_fields__ if name != "id"}
LIVE = " UNION ALL ".join(
    f"""
  (SELECT m.id, {_select(LISTED, 0)}
   FROM messages.message AS m
   WHERE {branch}
     AND (%(topic)s::text IS NULL OR m.topic = %(topic)s)
     AND (%(batch)s::bigint IS NULL OR m.batch_id = %(batch)s)
     AND (%(state)s::text IS NULL OR {STATE} = %(state)s)
     AND m.id > %(after)s
   ORDER BY m.id LIMIT %(most)s)"""  # noqa: S608 - constants only
    for branch in BRANCHES
)
ENDED = f"""
  SELECT a.id, {_select(LISTED, 1)}
  FROM messages.message_archive AS a
  WHERE a.result = %(state)s
    AND a.archived_at > now() - %(since)s
    AND (%(topic)s::text IS NULL OR a.topic = %(topic)s)
    AND (%(batch)s::bigint IS NULL OR a.batch_id = %(batch)s)
    AND a.id > %(after)s"""  # noqa: S608 - constants only
# By the clock that says when messages were published and ended; ids are given out in their order.
LATEST = """
  SELECT clock_timestamp() AS at, greatest(
    (SELECT m.id FROM messages.message AS m ORDER BY m.id DESC LIMIT 1),
    (SELECT a.id FROM messages.message_archive AS a ORDER BY a.id DESC LIMIT 1), 0) AS max_id"""
# Messages, read again. An archived one is looked up in the partition of its day.
CONTENTS_OF = """
    SELECT m.id, m.payload, m.body, m.headers FROM messages.message AS m WHERE m.id = ANY (%(live)s)
    UNION ALL
    SELECT a.id, a.payload, a.body, a.headers
    FROM unnest(%(ended)s::bigint[], %(ended_at)s::timestamptz[]) AS e (id, at)
    JOIN messages.message_archive AS a ON a.id = e.id AND a.archived_at = e.at"""
PREVIEWS = f"""
  SELECT l.id, CASE
    WHEN l.body IS NOT NULL THEN format('%%s bytes', octet_length(l.body))
    WHEN pg_column_size(l.payload) > 16384 THEN format('JSON of about %%s kB', pg_column_size(l.payload) / 1024)
    ELSE left(messages.display_json(l.payload), %(chars)s)
  END
  FROM ({CONTENTS_OF}) AS l"""  # noqa: S608 - constants only
HEADERS = f"""
  SELECT DISTINCT p.key, p.value::text
  FROM ({CONTENTS_OF}) AS h
  CROSS JOIN LATERAL jsonb_each(CASE WHEN jsonb_typeof(h.headers) = 'object' THEN h.headers END) AS p
  WHERE jsonb_typeof(p.value) IN ('string', 'number', 'boolean') AND length(p.key) <= 100
    AND length(p.value::text) <= 100
  LIMIT 500"""  # noqa: S608 - constants only

# All that were published, as a `Statement` for every driver. As one text: the codecs for JSON and bytes differ between
# connections.
PUBLISHED_COLUMNS = "id, topic, payload, headers, key, channel, priority, max_attempts"
PUBLISHED = f"""
    SELECT coalesce(json_agg(p ORDER BY p.id), '[]')::text
    FROM (
      SELECT {PUBLISHED_COLUMNS}, encode(body, 'hex') AS body, available_at > messages.now() AS is_delayed
      FROM messages.message
      UNION ALL SELECT {PUBLISHED_COLUMNS}, encode(body, 'hex'), false FROM messages.message_archive
    ) AS p
    WHERE %(topic)s::text IS NULL OR p.topic = %(topic)s::text
"""  # noqa: S608 - constants only


@dataclass(frozen=True, slots=True)
class MessageRecord(ListedMessage):
    """All that is known of a message. What is about contents is None for those who may not read them.

    Attributes:
        runs: how often a handler began with it, attempts that were handed back included.
        locked_at: when the last attempt claimed it.
        redriven_from: the dead message that it was redriven from.
        batch_id: the batch in which it counts.
        error_fingerprint: equal for similar errors.
        history_json: the attempts that ended before the last one; those with `_json` are decoded by properties of the
            same name without it.
        redriven_as: the message that it was redriven as.
        expires_at: when it expires if no attempt has begun.
        max_attempts: its own limit; None: the topic's.
        timeout: how long an attempt may run; None: what the topic says.
        backoff_json: how long to wait before the next attempt; None: what the topic says.
        retention: how long the archive keeps it; None: what the topic says.
        original_topic: the topic that it died in, if it is a dead letter.
        state_kept_json: the checkpoint of its handler.
        progress_json: what its handler last said of its progress.
        output_json: what its handler returned.
    """

    runs: int
    locked_at: datetime | None
    redriven_from: int | None
    batch_id: int | None
    error_fingerprint: str | None
    history_json: str | None
    error: str | None
    redriven_as: int | None = None
    expires_at: datetime | None = None
    max_attempts: int | None = None
    timeout: timedelta | None = None
    backoff_json: str | None = None
    retention: timedelta | None = None
    original_topic: str | None = None
    headers_json: str | None = None
    state_kept_json: str | None = None
    progress_json: str | None = None
    output_json: str | None = None
    payload_json: str | None = None
    body: bytes | None = None

    history = decoded("history_json")
    backoff = decoded("backoff_json")
    headers = decoded("headers_json")
    state_kept = decoded("state_kept_json")
    progress = decoded("progress_json")
    output = decoded("output_json")
    payload = decoded("payload_json")


@dataclass(frozen=True, slots=True)
class TopicOfMessage:
    """The topic and the state of a message."""

    id: int
    topic: str
    state: str


@dataclass(frozen=True, slots=True)
class LatestMessage:
    """What was published last: the highest id at a time."""

    at: datetime
    max_id: int


@dataclass(frozen=True, slots=True)
class StoredStep:
    """What a step of a handler returned.

    Attributes:
        attempt: which attempt ran the step.
        result: JSON, or its first 2,000 characters.
    """

    name: str
    attempt: int
    kept_at: datetime
    result: str


@dataclass(frozen=True, slots=True)
class AttemptLog:
    """The log lines of an attempt, if its topic keeps them (`log_bytes`).

    Attributes:
        attempt: the number of the attempt; one that was handed back leaves its number to the next one.
        locked_at: when the attempt claimed the message: `started` of the history.
        kept_at: when the lines were stored: at the end of the attempt.
        lines: the last lines; each begins with its time, level and logger, and what belongs to it is indented below it.
        left_out: how many lines before them are left out.
    """

    attempt: int
    locked_at: datetime
    kept_at: datetime
    lines: str
    left_out: int


def find_message(message_id: int) -> Call[MessageRecord | None]:
    """Read a message, live or archived."""
    return first(query_call(_query(COLUMNS | CONTENTS), MessageRecord, id=message_id))


def read_message(message_id: int, *, contents: bool = True) -> Call[dict[str, Any] | None]:
    """Read a message, live or archived, as a dict; JSON is text.

    Args:
        message_id: which message.
        contents: also what only those may read who may read payloads.
    """
    columns = COLUMNS | CONTENTS if contents else COLUMNS
    return Call(_query(columns).encode(), {"id": message_id}, partial(_first_dict, ("id", *columns)))


def read_shown(message_id: int, *, chars: int, bytes_: int) -> Call[dict[str, Any] | None]:
    """Read a message as read_message does, and what of its topic it inherits; of long values the beginning.

    Args:
        message_id: which message.
        chars: how many characters of a long text are read.
        bytes_: how many bytes of a body are read.
    """
    return Call(
        SHOWN.encode(), {"id": message_id, "chars": chars, "bytes": bytes_}, partial(_first_dict, tuple(BOUNDED))
    )


def find_steps(message_id: int) -> Call[list[StoredStep]]:
    """Read what the steps of a message returned, the first step first."""
    return query_call(STEPS, StoredStep, "ORDER BY f.kept_at, f.name LIMIT 1000", id=message_id)


def find_logs(message_id: int) -> Call[list[AttemptLog]]:
    """Read the log lines of the attempts of a message, the first attempt first."""
    clauses = "WHERE f.message_id = %(id)s ORDER BY f.kept_at, f.claim_id LIMIT 20"
    return select_call("attempt_log", AttemptLog, clauses, id=message_id)


def find_live(
    topic: str | None, batch: int | None, state: str | None, after: int, most: int
) -> Call[list[ListedMessage]]:
    """Read messages that have not ended, in the order of their ids after an id."""
    clauses = "ORDER BY f.id LIMIT %(most)s"
    return query_call(LIVE, ListedMessage, clauses, topic=topic, batch=batch, state=state, after=after, most=most)


def find_ended(
    topic: str | None, batch: int | None, result: str, since: timedelta, after: int, most: int
) -> Call[list[ListedMessage]]:
    """Read messages that ended with a result within a time, in the order of their ids after an id."""
    values = {"topic": topic, "batch": batch, "state": result, "since": since, "after": after, "most": most}
    return query_call(ENDED, ListedMessage, "ORDER BY f.id LIMIT %(most)s", **values)


def topics_of(ids: Sequence[int]) -> Call[list[TopicOfMessage]]:
    """Read the topics and states of messages, live or archived."""
    return select_call("state", TopicOfMessage, "WHERE f.id = ANY (%(ids)s::bigint[]) ORDER BY f.id", ids=list(ids))


def latest_message() -> Call[list[LatestMessage]]:
    """Read what was published last: one row."""
    return query_call(LATEST, LatestMessage)


def previews(listed: Sequence[tuple[int, datetime | None]], chars: int) -> Call[dict[int, str | None]]:
    """Read the beginnings of the payloads of messages, as find_messages writes them.

    listed: their ids, and when they ended.
    """
    return Call(PREVIEWS.encode(), {**_places(listed), "chars": chars}, dict)


def headers(listed: Sequence[tuple[int, datetime | None]]) -> Call[list[tuple[str, str]]]:
    """Read names and JSON texts of the short headers of messages. listed: as of previews."""
    return Call(HEADERS.encode(), _places(listed), list)


def _places(listed: Sequence[tuple[int, datetime | None]]) -> dict[str, Any]:
    ended = [(each, at) for each, at in listed if at is not None]
    return {
        "live": [each for each, at in listed if at is None],
        "ended": [each for each, _ in ended],
        "ended_at": [at for _, at in ended],
    }


def _first_dict(names: Sequence[str], rows: Rows) -> dict[str, Any] | None:
    return dict(zip(names, rows[0], strict=True)) if rows else None
