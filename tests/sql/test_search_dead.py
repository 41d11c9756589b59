"""messages.search_dead: dead messages only, by their index."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from tests.sql.queue import Queue, Row

EVERYTHING = (
    "(NULL, NULL, %s::text[], NULL, NULL, NULL, NULL, NULL, '{}', NULL, NULL, NULL, NULL, NULL)::messages.search"
)


def walk(queue: Queue, place: Any = None, limit: int = 100, max_examined: int = 100) -> Row:
    query = f"SELECT * FROM messages.search_dead({EVERYTHING}, %s, %s, %s)"
    return queue.row(query, [["failed"], None if place is None else Jsonb(place), limit, max_examined])


def test_batches_of_five_hundred_are_merged_without_a_gap(queue: Queue) -> None:
    ids = []
    for topic in ("a", "b"):
        ids += queue.publish_many(600, topic)
        queue.conn.execute("SET client_min_messages = error")
        for _ in range(6):
            claimed = queue.claim(topic)
            queue.settle("fail", claimed, ["boom"] * len(claimed))

    walked = walk(queue, limit=5000, max_examined=5000)

    died = queue.rows("SELECT id FROM messages.message_archive ORDER BY archived_at DESC, id DESC")
    assert walked.ids == [row.id for row in died]
    assert sorted(walked.ids) == sorted(ids)
    assert walked.place is None
