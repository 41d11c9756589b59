"""messages.oldest_due_channels: the places of the messages that have been due longest."""

from __future__ import annotations

from typing import Any

from psycopg import sql

from tests.sql.queue import Queue

FIRST = "SELECT * FROM messages.oldest_due_channels('t', %s, messages.now(), %s)"


def first(queue: Queue, most: int = 100, low: str = "-infinity") -> Any:
    found = queue.row(FIRST, [low, most])
    return found.channels and list(zip(found.channels, found.priorities, strict=True)), found.is_all


def test_it_tells_each_place_that_has_a_message_which_is_due_in_their_order(queue: Queue) -> None:
    for channel, priority in (("b", 5), ("a", 9), ("a", 0), ("b", 5), ("Z", 1)):
        queue.publish(channel=channel, priority=priority)
    queue.publish(channel="delayed", wait="1 hour")
    queue.publish()
    queue.publish("u", channel="a")

    assert first(queue) == ([("Z", 1), ("a", 0), ("a", 9), ("b", 5)], True)


def test_where_more_are_due_it_tells_the_places_of_the_oldest_and_that_there_may_be_others(queue: Queue) -> None:
    queue.publish(channel="young", wait="-1 s")
    queue.publish_many(3, channel="old", wait="-1 hour")

    assert first(queue, 3) == ([("old", 5)], False)
    assert first(queue, 5) == ([("old", 5), ("young", 5)], True)


def test_without_any_there_are_none(queue: Queue) -> None:
    assert first(queue) == (None, True)


def test_it_reads_from_a_time_on(queue: Queue) -> None:
    queue.publish(channel="below", available_at="2026-01-01")
    queue.publish(channel="above", available_at="2026-01-03")

    assert first(queue, low="2026-01-02") == ([("above", 5)], True)


def test_what_is_delayed_costs_nothing(own_queue: Queue) -> None:
    own_queue.publish_many(20_000, channel=sql.SQL("'c' || n"), wait="1 hour")

    assert own_queue.buffers("SELECT messages.oldest_due_channels('t', '-infinity', messages.now(), 1000)") < 20
