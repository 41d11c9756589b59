"""messages.search_waiting: waiting messages, topic by topic."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from tests.sql.queue import Queue, Row

EVERYTHING = (
    "(NULL, NULL, %s::text[], NULL, NULL, NULL, NULL, NULL, '{}', NULL, NULL, NULL, NULL, NULL)::messages.search"
)


def walk(queue: Queue, place: Any = None, limit: int = 100, max_examined: int = 100) -> Row:
    query = f"SELECT * FROM messages.search_waiting({EVERYTHING}, %s, %s, %s)"
    return queue.row(
        query, [["ready", "delayed", "retrying"], None if place is None else Jsonb(place), limit, max_examined]
    )


def test_topics_follow_each_other_and_a_position_has_its_topic(queue: Queue) -> None:
    b, a = queue.publish("b"), queue.publish("a")

    first = walk(queue, limit=1)
    assert (first.ids, first.place[0]) == ([a], "a")
    assert walk(queue, first.place).ids == [b]
