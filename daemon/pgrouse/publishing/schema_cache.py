"""A publisher's cache of the payload_schema of topics, to check payloads without asking for the schema each time.

The statement that publishes carries the digest of the cached schema, and does nothing if the topic has another schema
by now.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pgrouse.config.policy.payload_schema import PayloadSchema, compile_schema
from pgrouse.errors import InvalidPayload
from pgrouse.values.topic_pattern import find

READ = """
    SELECT messages.payload_schema_digest(%(topic)s::pg_catalog.text),
           coalesce(t.payload_schema, d.payload_schema)::pg_catalog.text
    FROM messages.inherited_policy AS d
    LEFT JOIN messages.topic AS t ON t.topic OPERATOR(pg_catalog.=) %(topic)s
    WHERE d.topic OPERATOR(pg_catalog.=) messages.inherits_from(%(topic)s)
"""
READ_ALL = (
    "SELECT pg_catalog.jsonb_object_agg(t.topic, t.payload_schema)::pg_catalog.text "
    "FROM messages.topic AS t WHERE t.payload_schema IS NOT NULL"
)


@dataclass(frozen=True, slots=True)
class CachedSchema:
    """The schema that was last read for one topic. Without a digest there is no schema."""

    digest: str | None = None
    text: str | None = None

    def problems(self, row: dict[str, Any]) -> list[str]:
        """Return the problems of the columns of a message.

        Raises:
            SchemaUnusable: the schema itself cannot be used; nothing can be published to the topic until it is fixed.
        """
        return [] if self.text is None else _compiled(self.text).problems(row.get("payload"))


# A publisher to more topics with a schema reads schemas again at times; topics named after data must not fill the
# memory.
MAX_TOPICS = 1000
# By topic. A topic of the same name in another database costs only one more query: an entry counts only with its
# digest.
_last: dict[str, CachedSchema] = {}
_NONE = CachedSchema()


def get(topic: str) -> CachedSchema:
    """Return the schema that was last read for a topic; if none was read, no schema."""
    return _last.get(topic, _NONE)


def put(topic: str, digest: str | None, text: str | None) -> CachedSchema:
    """Keep the schema that was read for a topic."""
    if digest is None:
        _last.pop(topic, None)
        return _NONE
    if len(_last) >= MAX_TOPICS and topic not in _last:
        _last.clear()
    _last[topic] = known = _shared(digest, text)
    return known


@lru_cache(maxsize=256)
def _shared(digest: str, text: str | None) -> CachedSchema:
    """Return one shared object for all topics: the schema of `*` applies to any number of them."""
    return CachedSchema(digest, text)


class SchemaSnapshot:
    """The schemas of all topics at one moment, from READ_ALL."""

    def __init__(self, text: str | None) -> None:
        self._texts = {topic: json.dumps(schema) for topic, schema in json.loads(text or "{}").items()}

    def check(self, row: dict[str, Any]) -> None:
        """Check the columns of a message.

        Raises:
            InvalidPayload: the payload does not fit the schema of its topic.
            SchemaUnusable: the schema cannot be used.
        """
        if not self._texts:
            return
        if problems := CachedSchema(text=self._texts.get(find(self._texts, row["topic"]) or "*")).problems(row):
            raise InvalidPayload(row["topic"], problems)


@lru_cache(maxsize=256)
def _compiled(text: str) -> PayloadSchema:
    return compile_schema(json.loads(text))
