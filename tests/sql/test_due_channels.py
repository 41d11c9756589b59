"""messages.due_channels: the (channel, priority) pairs of one topic that have a due message."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.queue import Queue

DUE = "SELECT channel, priority FROM messages.due_channels('t', %s, %s, messages.now(), %s, '-infinity', 2147483647)"


def due(queue: Queue, after: str = "", upto: str | None = None, limit: int = 100) -> list[Any]:
    return [tuple(row) for row in queue.rows(DUE, [after, upto, limit])]


def test_it_visits_each_channel_and_priority_that_has_a_due_message(queue: Queue) -> None:
    for channel, priority in (("b", 5), ("a", 9), ("a", 0), ("b", 5), ("Z", 1)):
        queue.publish(channel=channel, priority=priority)
    queue.publish(channel="delayed", wait="1 hour")
    queue.publish()
    queue.publish("u", channel="a")

    assert due(queue) == [("Z", 1), ("a", 0), ("a", 9), ("b", 5)]


@pytest.mark.parametrize(
    ("after", "upto", "visited"),
    [("a", None, "bc"), ("", "b", "ab"), ("a", "b", "b"), ("aa", "bb", "b"), ("c", None, ""), ("", "A", "")],
)
def test_it_begins_after_one_channel_and_ends_with_another(
    queue: Queue, after: str, upto: str | None, visited: str
) -> None:
    for channel in "abc":
        queue.publish(channel=channel)

    assert "".join(channel for channel, _ in due(queue, after, upto)) == visited


def test_it_stops_once_enough_were_found_and_counts_only_due_ones(queue: Queue) -> None:
    queue.publish(channel="a", wait="1 hour")
    for channel in "bcd":
        queue.publish(channel=channel)

    assert due(queue, limit=2) == [("b", 5), ("c", 5)]


def test_a_channel_whose_messages_are_all_locked_is_skipped(queue: Queue) -> None:
    queue.publish(channel="a")
    queue.claim()
    queue.publish(channel="b")

    assert due(queue) == [("b", 5)]


def test_channels_are_ordered_by_their_bytes_whatever_the_collation_of_the_server(queue: Queue) -> None:
    for channel in ("é", "Z", "a", "10", "9"):
        queue.publish(channel=channel)

    assert [channel for channel, _ in due(queue)] == ["10", "9", "Z", "a", "é"]


def test_it_never_reads_the_messages_of_a_channel_one_by_one(own_queue: Queue) -> None:
    own_queue.publish_many(20_000, channel="a", wait="1 hour")
    own_queue.publish_many(20_000, channel="b")

    assert (
        own_queue.buffers("SELECT messages.due_channels('t', '', NULL, messages.now(), 100, '-infinity', 2147483647)")
        < 60
    )
    assert due(own_queue) == [("b", 5)]


def test_it_reads_no_further_than_its_limit(own_queue: Queue) -> None:
    own_queue.conn.execute(
        "INSERT INTO messages.message (topic, channel, payload) SELECT 't', 'c' || n, '1' FROM generate_series(1, 20000) AS n"
    )

    assert (
        own_queue.buffers("SELECT messages.due_channels('t', '', NULL, messages.now(), 10, '-infinity', 2147483647)")
        < 120
    )
