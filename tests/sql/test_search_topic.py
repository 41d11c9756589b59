"""messages.search_topic: waiting messages of one topic, in the order in which they are claimed."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from tests.sql.queue import Queue, Row

SEARCH = "('t', NULL, %s::text[], NULL, %s, NULL, NULL, NULL, '{}', NULL, NULL, NULL, NULL, NULL)::messages.search"


def walk(queue: Queue, *states: str, place: Any = None, key: str | None = None, limit: int = 100) -> Row:
    query = f"SELECT * FROM messages.search_topic({SEARCH}, 't', %s, %s, 100)"
    return queue.row(query, [list(states) or None, key, None if place is None else Jsonb(place), limit])


def test_messages_without_a_channel_come_first_by_priority_then_channel_by_channel(queue: Queue) -> None:
    in_channel, late, early, urgent = (
        queue.publish(channel="c"),
        queue.publish(wait="-1 minute"),
        queue.publish(wait="-2 minutes"),
        queue.publish(priority=0),
    )

    order = [urgent, early, late, in_channel]
    assert walk(queue).ids == order
    place, walked = None, []
    for _ in order:
        one = walk(queue, place=place, limit=1)
        walked += one.ids
        place = one.place
    assert walked == order


def test_ready_and_later_messages_are_separate_ranges(queue: Queue) -> None:
    ready, delayed = queue.publish(), queue.publish(wait="1 hour")

    only_ready, only_delayed = walk(queue, "ready"), walk(queue, "delayed")

    assert (only_ready.ids, only_ready.examined) == ([ready], 1)
    assert (only_delayed.ids, only_delayed.examined) == ([delayed], 1)


def test_a_key_that_was_never_attempted_is_found_without_reading_others(queue: Queue) -> None:
    queue.publish_many(10)
    keyed = queue.publish(key="k")

    assert walk(queue, key="k", limit=1).ids == [keyed]
    assert walk(queue, key="k").ids == [keyed]
