"""The payload schemas of the topics, as the daemon knows them: what it checks before a handler runs.

Every other policy is read by the SQL functions, on the spot. This is a copy: made at the start, and anew when somebody says that a topic was
changed, and about once a second in case nobody was heard.
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

# Which versions of which rows there are: all that is asked while nothing changes.
MARK = """
  SELECT coalesce(pg_catalog.md5(pg_catalog.string_agg(pg_catalog.concat(topic, ' ', xmin), ' ' ORDER BY topic)), '')
  FROM messages.topic WHERE payload_schema IS NOT NULL"""
SCHEMAS = "SELECT topic, payload_schema::pg_catalog.text FROM messages.topic WHERE payload_schema IS NOT NULL"
DEFAULTS = "*"
# An error of the archive has 8192, and loses its beginning when it is longer.
ERROR_BYTES = 8000


class TopicSchemas:
    """The copy; false while no topic has a schema."""

    def __init__(self) -> None:
        # By topic; None = one that cannot be used.
        self._schemas: dict[str, PayloadSchema | None] = {}
        self._texts: dict[str, str] = {}
        self._mark = ""

    def __bool__(self) -> bool:
        return bool(self._schemas)

    async def read(self, conn: psycopg.AsyncConnection) -> None:
        """Read what has changed since the last time."""
        cursor = await conn.execute(MARK.encode())
        (mark,) = await cursor.fetchone() or ("",)
        if mark != self._mark:
            cursor = await conn.execute(SCHEMAS.encode())
            self.take(await cursor.fetchall())
            self._mark = mark

    def read_first(self, conn: psycopg.Connection) -> None:
        """Read everything, before the first message is claimed."""
        self.take(conn.execute(SCHEMAS.encode()).fetchall())

    def take(self, rows: Iterable[tuple[str, str]]) -> None:
        """Take in these rows of SCHEMAS. Only what is new is made ready; one that cannot be is said once, and refuses nothing."""
        texts = dict(rows)
        known, self._texts = self._texts, texts
        self._schemas = {
            topic: self._schemas[topic] if known.get(topic) == text else _compiled(topic, text)
            for topic, text in texts.items()
        }

    def misfit(self, message: Message) -> str | None:
        """Return why a message's payload is not what its topic's payload_schema asks for; None if it is, or there is none."""
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
            mend="until it is mended, payloads of the topic are not checked",
        )
        return None


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaUnusable(f"payload_schema cannot be read: {error}") from None
