"""Finds the fields of a topic's payloads, in its payload_schema or in a sample of its messages.

The result is Spark's DDL, in the form of option payload.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pgrouse.errors import ConfigError
from pyspark_pgrouse import connection
from pyspark_pgrouse.options import INFER, SCHEMA, Mode, Options
from pyspark_pgrouse.read.field_type import FieldType, of_schema, of_value
from pyspark_pgrouse.read.scope import DEAD

if TYPE_CHECKING:
    import psycopg

PAYLOAD_SCHEMA = """
    SELECT coalesce(t.payload_schema, d.payload_schema)::text
    FROM messages.topic AS d
    LEFT JOIN messages.topic AS t ON t.topic = %(topic)s
    WHERE d.topic = '*'
"""
# The newest messages of the topic; for a rare topic, those among the newest of all topics. Large ones are left out: the
# sample is held in memory.
ARCHIVED = """
    SELECT s.payload
    FROM (
      SELECT a.topic, a.result, a.payload
      FROM messages.message_archive AS a
      ORDER BY a.archive_xid DESC, a.id DESC
      LIMIT %(looked_at)s
    ) AS a
    CROSS JOIN LATERAL (SELECT a.payload::text) AS s (payload)
    WHERE a.topic = %(topic)s AND {condition} AND pg_column_size(a.payload) <= %(bytes)s AND octet_length(s.payload) <= %(bytes)s
    LIMIT %(rows)s
"""
WAITING = """
    SELECT s.payload
    FROM messages.message AS a
    CROSS JOIN LATERAL (SELECT a.payload::text) AS s (payload)
    WHERE a.topic = %(topic)s AND pg_column_size(a.payload) <= %(bytes)s AND octet_length(s.payload) <= %(bytes)s
    LIMIT %(rows)s
"""
SAMPLE = {
    Mode.ARCHIVE: ("message_archive", ARCHIVED.format(condition="TRUE")),
    Mode.DEAD: ("message_archive", ARCHIVED.format(condition=DEAD)),
    Mode.READY: ("message", WAITING),
}
LIMITS = {"rows": 1000, "looked_at": 100_000, "bytes": 65_536}


def payload_fields(dsn: str | None, topic: str, source: str = SCHEMA, mode: str = "archive") -> str:
    """Return the fields of a topic's payloads in Spark's DDL, to name them in option payload.

    Args:
        dsn: as in option dsn.
        topic: its name.
        source: `schema` = the topic's payload_schema; `infer` = a sample of its newest messages.
        mode: which messages are sampled: `archive`, `dead` or `ready`.

    Raises:
        ConfigError: the topic has no such schema, or no messages, or their payloads are not objects.
    """
    return resolve(Options.parse({"dsn": dsn or "", "topics": topic, "payload": source, "mode": mode})).payload or ""


def resolve(options: Options) -> Options:
    """Return the options with the fields of the payload instead of their source.

    Raises:
        ConfigError: as `payload_fields`.
    """
    read = {SCHEMA: _from_schema, INFER: _from_sample}[options.payload or ""]
    return replace(options, payload=connection.run_with_retry(options.dsn, lambda conn: read(conn, options)))


def _from_schema(conn: psycopg.Connection[Any], options: Options) -> str:
    (topic,) = options.topics
    connection.check(conn, "topic", ["topic", "payload_schema"])
    (text,) = conn.execute(PAYLOAD_SCHEMA, {"topic": topic}).fetchone() or (None,)
    if text is None:
        raise ConfigError(f"topic {topic} has no payload_schema: set one, or name the fields by option payload")
    return _ddl(of_schema(json.loads(text)), f"the payload_schema of topic {topic}")


def _from_sample(conn: psycopg.Connection[Any], options: Options) -> str:
    (topic,) = options.topics
    table, query = SAMPLE[options.mode]
    connection.check(conn, table, ["topic", "payload"])
    payloads = [text for (text,) in conn.execute(query, {"topic": topic, **LIMITS})]
    if not payloads:
        raise ConfigError(f"topic {topic} has no payloads to infer fields from: name them by option payload")
    return _ddl(infer(payloads), f"what the newest {len(payloads)} payloads of topic {topic} have in common")


def infer(payloads: Iterable[str]) -> FieldType:
    """Return the common type of the JSON objects among these texts; a payload of another type will be corrupt."""
    found = FieldType()
    for text in payloads:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):  # a number with thousands of digits, or deep nesting
            continue
        if isinstance(value, dict):
            found = found.merged(of_value(value))
    return found


def _ddl(found: FieldType, what: str) -> str:
    fields = found.fields_ddl()
    if fields is None:
        raise ConfigError(f"{what} is no object with fields: name them by option payload, or use payload=json")
    return fields
