"""messages.payload_schema_digest: identifies the payload schema of a topic."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_without_a_schema_there_is_none(queue: Queue) -> None:
    queue.policy("t", max_attempts=3)

    assert [queue.call("payload_schema_digest", topic) for topic in ("t", "unknown")] == [None, None]


def test_it_changes_only_with_the_schema(queue: Queue) -> None:
    queue.policy("t", payload_schema={"type": "object", "required": ["id"]})
    first = queue.call("payload_schema_digest", "t")
    queue.policy("t", max_attempts=3, payload_schema={"required": ["id"], "type": "object"})
    same = queue.call("payload_schema_digest", "t")
    queue.policy("t", payload_schema={"type": "array"})

    assert first == same
    assert queue.call("payload_schema_digest", "t") not in {first, None}


def test_the_topics_own_schema_wins_over_the_default(queue: Queue) -> None:
    queue.policy("*", payload_schema={"type": "object"})
    queue.policy("t", payload_schema={"type": "array"})

    assert queue.call("payload_schema_digest", "other") not in {queue.call("payload_schema_digest", "t"), None}


def test_a_publisher_may_call_it(queue: Queue) -> None:
    queue.conn.execute("SET ROLE messages_publisher")

    assert queue.call("payload_schema_digest", "t") is None
    queue.conn.execute("RESET ROLE")
