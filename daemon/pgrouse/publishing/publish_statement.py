"""The statement that publishes one message: the only place that turns a message's columns into SQL."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from pgrouse.publishing.new_message import OnConflict
from pgrouse.publishing.schema_cache import CachedSchema
from pgrouse.publishing.statement import Statement, Value

# Without these casts the server does not know the types of values in a SELECT. They go through text: see Statement.
CASTS = {
    "priority": "int",
    "payload": "pg_catalog.text::pg_catalog.jsonb",
    "body": "pg_catalog.bytea",
    "headers": "pg_catalog.text::pg_catalog.jsonb",
    "max_attempts": "int",
    "timeout": "pg_catalog.text::interval",
    "backoff": "pg_catalog.text::pg_catalog.jsonb",
    "retention": "pg_catalog.text::interval",
    "batch_id": "bigint",
    "available_at": "pg_catalog.text::pg_catalog.timestamptz",
    "delay": "pg_catalog.text::interval",
    "ttl": "pg_catalog.text::interval",
    "after": "pg_catalog.text::bigint[]",
    "expect_result": "pg_catalog.text::boolean",
    "debounce": "pg_catalog.text::interval",
    "max_delay": "pg_catalog.text::interval",
    "throttle": "pg_catalog.text::interval",
}
# These are arguments of messages.publish and no columns.
NO_COLUMNS = frozenset({"after", "expect_result", "debounce", "max_delay", "throttle"})

# Whether a topic has no policy that publishing must check: as NOT messages.may_have_policy, which no publisher may
# call. NULL for a role that may not read the sequence.
HAS_NO_POLICY = """
    ((pg_catalog.pg_sequence_last_value('messages.policy_topic_bits'::pg_catalog.regclass) OPERATOR(pg_catalog.>>)
      (1 OPERATOR(pg_catalog.+) pg_catalog.mod(pg_catalog.hashtext({topic}) OPERATOR(pg_catalog.&) 2147483647, 62)))
      OPERATOR(pg_catalog.&) 1::bigint) OPERATOR(pg_catalog.=) 0"""
# A topic without such a policy has no schema either, and that check costs almost nothing.
HAS_NO_SCHEMA = f"""
    {HAS_NO_POLICY.format(topic="%(topic)s::pg_catalog.text")}
    OR messages.payload_schema_digest(%(topic)s::pg_catalog.text) IS NULL
"""
SCHEMA_IS_KNOWN = (
    "messages.payload_schema_digest(%(topic)s::pg_catalog.text) OPERATOR(pg_catalog.=) "
    "%(known_schema)s::pg_catalog.text"
)


def publish_statement(columns: dict[str, Any], on_conflict: OnConflict, known: CachedSchema) -> Statement:
    """Return the statement that publishes one message if its topic has the known schema.

    Args:
        columns: the columns from `new_message.row`.
        on_conflict: checked there already.
        known: if the topic has another schema, the statement does nothing, and returns no row; else it returns the id,
            and `Published.outcome` unless a row was inserted.
    """
    values = dict(columns)
    if isinstance(values.get("available_at"), timedelta):
        values["delay"] = values.pop("available_at")
    sql = _sql(tuple(values), on_conflict, known.digest is not None)
    texts = {name: value if type(value) is str else _plain(value) for name, value in values.items()}
    return Statement(sql, texts if known.digest is None else texts | {"known_schema": known.digest})


def is_a_row(names: Iterable[str], on_conflict: OnConflict) -> bool:
    """Return whether an INSERT of the columns with these names is the whole publish."""
    return on_conflict == "error" and NO_COLUMNS.isdisjoint(names)


@lru_cache(maxsize=512)
def _sql(names: tuple[str, ...], on_conflict: OnConflict, has_schema: bool) -> str:
    """Return the same text for the same columns.

    Drivers prepare repeated statements, and cache what they found in them.
    """
    given = {name: f"%({name})s::{CASTS.get(name, 'pg_catalog.text')}" for name in names}
    publish = _by_row(given) if is_a_row(names, on_conflict) else _by_function(given, on_conflict)
    return publish.format(SCHEMA_IS_KNOWN if has_schema else HAS_NO_SCHEMA)


def _by_row(given: dict[str, str]) -> str:
    """Insert a row. Columns that were not given are not named, so the server's defaults apply."""
    columns = dict(given)
    if delay := columns.pop("delay", None):
        columns["available_at"] = f"pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) {delay}"
    if ttl := columns.pop("ttl", None):
        columns["expires_at"] = (
            f"greatest({columns.get('available_at', 'NULL')}, pg_catalog.clock_timestamp()) "
            f"OPERATOR(pg_catalog.+) {ttl}"
        )
    return (
        f"INSERT INTO messages.message ({', '.join(columns)}) SELECT {', '.join(columns.values())} WHERE {{}} "
        "RETURNING id"
    )


def _by_function(given: dict[str, str], on_conflict: OnConflict) -> str:
    arguments = ", ".join(f"p_{name} => {value}" for name, value in given.items())
    return (
        "SELECT p.id, p.outcome "  # noqa: S608
        f"FROM messages.publish(p_on_conflict => '{on_conflict}', {arguments}) AS p WHERE {{}}"
    )


def interval_text(value: timedelta) -> str:
    """Return a time as an interval of the server.

    A day in Python has 24 hours; a day on the server has 23 when the clocks go forward.
    """
    return f"{value // timedelta(seconds=1)}.{value.microseconds:06} s"


def _plain(value: Any) -> Value:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat()
        case timedelta():
            return interval_text(value)
        case _:
            plain: Value = value
            return plain
