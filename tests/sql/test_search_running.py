"""messages.search_running: locked messages, by their id."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from tests.sql.queue import Queue, Row

EVERYTHING = (
    "(NULL, NULL, %s::text[], NULL, NULL, NULL, NULL, NULL, '{}', NULL, NULL, NULL, NULL, NULL)::messages.search"
)


def walk(queue: Queue, place: Any = None, limit: int = 100, max_examined: int = 100) -> Row:
    query = f"SELECT * FROM messages.search_running({EVERYTHING}, %s, %s, %s)"
    return queue.row(query, [["running"], None if place is None else Jsonb(place), limit, max_examined])


def test_it_continues_after_its_position_and_ends_without_one(queue: Queue) -> None:
    ids = queue.publish_many(3)
    queue.publish(wait="1 hour")
    queue.claim()

    first = walk(queue, limit=2)
    assert (first.ids, first.place) == (ids[:2], [ids[1]])
    rest = walk(queue, first.place)
    assert (rest.ids, rest.examined, rest.place) == (ids[2:], 1, None)
