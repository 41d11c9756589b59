"""The payload schemas of all topics, as the daemon checks them before a handler runs.

SQL functions read all other policy settings themselves. This is a cache: it is loaded at the start, and refreshed when a notification says
that a topic was changed, and about once per second in case a notification was lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import psycopg
import structlog

from pgrouse import events
from pgrouse.client.message import Message
from pgrouse.payload_schema import PayloadSchema, SchemaUnusable, compile_schema

log = structlog.get_logger()

# A digest of the row versions: the only query while nothing changes.
VERSION = """
  SELECT coalesce(pg_catalog.md5(pg_catalog.string_agg(pg_catalog.concat(topic, ' ', xmin), ' ' ORDER BY topic)), '')
  FROM messages.topic WHERE payload_schema IS NOT NULL"""
SCHEMAS = "SELECT topic, payload_schema::pg_catalog.text FROM messages.topic WHERE payload_schema IS NOT NULL"
DEFAULTS = "*"
# The archive keeps the last 8192 bytes of an error.
ERROR_BYTES = 8000


class SchemaCache:
    """The cached schemas; false while no topic has one."""

    def __init__(self) -> None:
        # By topic; None = a schema that cannot be compiled.
        self._schemas: dict[str, PayloadSchema | None] = {}
        self._texts: dict[str, str] = {}
        self._version = ""

    def __bool__(self) -> bool:
        return bool(self._schemas)

    async def refresh(self, conn: psycopg.AsyncConnection) -> None:
        """Read what has changed since the last time."""
        cursor = await conn.execute(VERSION.encode())
        (version,) = await cursor.fetchone() or ("",)
        if version != self._version:
            cursor = await conn.execute(SCHEMAS.encode())
            self.update(await cursor.fetchall())
            self._version = version

    def load(self, conn: psycopg.Connection) -> None:
        """Read everything, before the first claim."""
        self.update(conn.execute(SCHEMAS.encode()).fetchall())

    def update(self, rows: Iterable[tuple[str, str]]) -> None:
        """Replace the cache by these rows of SCHEMAS. Only new schemas are compiled; one that cannot be compiled is logged once and rejects nothing."""
        texts = dict(rows)
        known, self._texts = self._texts, texts
        self._schemas = {
            topic: self._schemas[topic] if known.get(topic) == text else _compiled(topic, text)
            for topic, text in texts.items()
        }

    def violation(self, message: Message) -> str | None:
        """Return why a message's payload does not match its topic's payload_schema; None if it does, or there is none."""
        schemas = self._schemas
        schema = schemas[message.topic] if message.topic in schemas else schemas.get(DEFAULTS)
        if schema is None:
            return None
        try:
            problems = schema.problems(message.payload)
        except (ValueError, RecursionError) as error:
            problems = [f"it cannot be decoded: {error}"]
        if not problems:
            return None
        return f"payload_schema: {'; '.join(problems)}".encode()[:ERROR_BYTES].decode("utf-8", "ignore")


def _compiled(topic: str, text: str) -> PayloadSchema | None:
    try:
        return compile_schema(_loads(text))
    except SchemaUnusable as error:
        log.error(  # noqa: TRY400 - the reason is all there is to know
            events.PAYLOAD_SCHEMA_UNUSABLE,
            topic=topic,
            reason=str(error),
            fix="until it is fixed, payloads of the topic are not checked",
        )
        return None


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaUnusable(f"payload_schema cannot be read: {error}") from None
