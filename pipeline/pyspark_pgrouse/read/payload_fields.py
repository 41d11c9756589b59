"""Finds the fields of a topic's payloads, in its payload_schema or in a sample of its messages.

The result is Spark's DDL, in the form of option payload.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pgrouse.client.call import run
from pgrouse.client.queries.pipeline.archive_row import sample_payloads
from pgrouse.client.queries.pipeline.ready_message import sample_waiting_payloads
from pgrouse.client.queries.topic import effective_policy, find_policies
from pgrouse.errors import ConfigError
from pyspark_pgrouse.connection import connection
from pyspark_pgrouse.options import INFER, SCHEMA, Mode, Options
from pyspark_pgrouse.read.field_type import FieldType, of_schema, of_value

if TYPE_CHECKING:
    import psycopg

# The sample: at most this many payloads, and none larger than this.
SAMPLE_ROWS = 1000
SAMPLE_BYTES = 65_536


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
    policies = run(conn, find_policies([topic], ["payload_schema"]))
    schema = effective_policy(policies, topic)["payload_schema"]
    if schema is None:
        raise ConfigError(f"topic {topic} has no payload_schema: set one, or name the fields by option payload")
    return _ddl(of_schema(schema), f"the payload_schema of topic {topic}")


def _from_sample(conn: psycopg.Connection[Any], options: Options) -> str:
    (topic,) = options.topics
    is_ready = options.mode is Mode.READY
    connection.check(conn, "message" if is_ready else "message_archive", ["topic", "payload"])
    size = (SAMPLE_ROWS, SAMPLE_BYTES)
    payloads = run(
        conn,
        sample_waiting_payloads(topic, *size)
        if is_ready
        else sample_payloads(topic, *size, dead=options.mode is Mode.DEAD),
    )
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
