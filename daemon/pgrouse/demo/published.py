"""The messages that the demo has published."""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg

from pgrouse.publishing.publish import publish


class PublishedMessages:
    """The ids of the messages that were published, by topic."""

    def __init__(self) -> None:
        self.by_topic: Counter[str] = Counter()
        self.ids: list[int] = []

    def __len__(self) -> int:
        return len(self.ids)

    def publish(self, conn: psycopg.Connection[Any], topic: str, payload: Any) -> int:
        """Publish a message in the connection's transaction and note it; return its id."""
        message_id = publish(conn, topic, payload)
        self.by_topic[topic] += 1
        self.ids.append(message_id)
        return message_id
