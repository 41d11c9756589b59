"""The payload schemas of all topics, which the daemon checks before a handler runs.

SQL functions read all other policy settings themselves. This is a cache: it is loaded at the start, and refreshed when
a notification says that a topic was changed, and about once per second in case a notification was lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import psycopg

from pgrouse.client.call import run, run_async
from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind, Settlement
from pgrouse.client.queries.topic import payload_schemas, payload_schemas_version
from pgrouse.config.policy.payload_schema import NOT_INSTALLED, PayloadSchema, SchemaUnusable, compile_schema
from pgrouse.errors import ConfigError
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.values.topic_pattern import find, is_pattern

DEFAULTS = "*"
# The archive keeps the last 8192 bytes of an error.
ERROR_BYTES = 8000
# How long a message waits if this daemon cannot check its schema: another daemon may be able to.
RECHECK_AFTER = timedelta(seconds=30)


class SchemaCache:
    """The cached schemas.

    Args:
        topics: the topics and patterns of the handlers; the schemas of other topics are not cached. None = all topics.

    Attributes:
        is_empty: whether no topic has a schema: there is nothing to check.
    """

    def __init__(self, topics: Iterable[str] | None = None) -> None:
        self.topics = None if topics is None else frozenset(topics)
        # By topic; None = a schema that cannot be compiled.
        self._schemas: dict[str, PayloadSchema | None] = {}
        # The topics whose schemas this installation cannot check.
        self._uncheckable: set[str] = set()
        self._texts: dict[str, str] = {}
        self._version = ""
        self.is_empty = True

    async def refresh(self, conn: psycopg.AsyncConnection) -> None:
        """Read what has changed since the last time."""
        version = await run_async(conn, payload_schemas_version())  # the only query while nothing changes
        if version != self._version:
            self.update(await run_async(conn, payload_schemas()))
            self._version = version

    def load(self, conn: psycopg.Connection) -> None:
        """Read everything, before the first claim.

        Raises:
            ConfigError: a topic has a schema, and the package that checks it is not installed.
        """
        self.update(run(conn, payload_schemas()))
        if self._uncheckable:
            raise ConfigError(f"topics {', '.join(sorted(self._uncheckable))}: {NOT_INSTALLED}")

    def update(self, rows: list[tuple[str, str]]) -> None:
        """Replace the cache by these rows of payload_schemas.

        Only new schemas are compiled; a schema that cannot be used is logged once and rejects nothing.
        """
        texts = {topic: text for topic, text in rows if self._concerns(topic)}
        known, self._texts = self._texts, texts
        self._uncheckable &= texts.keys()
        self._schemas = {
            topic: self._schemas[topic] if known.get(topic) == text else self._compile(topic, text)
            for topic, text in texts.items()
        }
        self.is_empty = not self._schemas

    def check(self, messages: list[Message]) -> tuple[list[Message], Sequence[Settlement]]:
        """Return the messages whose handler may run, and the ends of the attempts of the others.

        A payload that does not match is rejected. A missing package is the operator's mistake: the message is deferred
        without using up its attempt.
        """
        if self.is_empty:
            return messages, ()
        ended = {message.id: settlement for message in messages if (settlement := self._check(message)) is not None}
        return [message for message in messages if message.id not in ended], list(ended.values())

    def _check(self, message: Message) -> Settlement | None:
        if self._uncheckable and self._topic_of_schema(message) in self._uncheckable:
            return Settlement(message, SettleKind.DEFER, after=RECHECK_AFTER)
        violation = self.violation(message)
        return None if violation is None else Settlement(message, SettleKind.REJECT, error=violation)

    def violation(self, message: Message) -> str | None:
        """Return why a message's payload does not match its topic's payload_schema.

        None: it matches, or there is no schema.
        """
        schema = self._schemas.get(self._topic_of_schema(message))
        if schema is None:
            return None
        try:
            problems = schema.problems(message.payload)
        except (ValueError, RecursionError) as error:
            problems = [f"it cannot be decoded: {error}"]
        if not problems:
            return None
        return f"payload_schema: {'; '.join(problems)}".encode()[:ERROR_BYTES].decode("utf-8", "ignore")

    def _concerns(self, topic: str) -> bool:
        return self.topics is None or is_pattern(topic) or find(self.topics, topic) is not None

    def _topic_of_schema(self, message: Message) -> str:
        return find(self._schemas, message.topic) or DEFAULTS

    def _compile(self, topic: str, text: str) -> PayloadSchema | None:
        self._uncheckable.discard(topic)
        try:
            return compile_schema(_loads(text))
        except SchemaUnusable as error:
            _log_unusable(topic, error, "until it is fixed, payloads of the topic are not checked")
        except ConfigError as error:
            self._uncheckable.add(topic)
            _log_unusable(topic, error, "install it and restart; until then messages of the topic wait")
        return None


def _log_unusable(topic: str, reason: Exception, fix: str) -> None:
    log.error(events.PAYLOAD_SCHEMA_UNUSABLE, topic=topic, reason=str(reason), fix=fix)


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaUnusable(f"payload_schema cannot be read: {error}") from None
