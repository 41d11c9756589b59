"""messages.search_ended: ended messages, the latest published first."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from tests.sql.queue import Queue, Row

EVERYTHING = (
    "(NULL, NULL, %s::text[], NULL, NULL, NULL, NULL, NULL, '{}', NULL, NULL, NULL, NULL, NULL)::messages.search"
)


def walk(queue: Queue, place: Any = None, limit: int = 100, max_examined: int = 100) -> Row:
    query = f"SELECT * FROM messages.search_ended({EVERYTHING}, %s, %s, %s)"
    return queue.row(query, [["success"], None if place is None else Jsonb(place), limit, max_examined])


def test_it_reads_a_bounded_number_and_continues_there(queue: Queue) -> None:
    ids = queue.publish_many(5)
    queue.settle("complete", queue.claim())

    first = walk(queue, max_examined=3)
    assert (first.ids, first.examined, first.place) == (ids[:1:-1], 3, [ids[2]])
    assert walk(queue, first.place).ids == [ids[1], ids[0]]
