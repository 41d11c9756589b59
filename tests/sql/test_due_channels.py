"""messages.due_channels: the (channel, priority) pairs of one topic that have a due message."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from psycopg import sql

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


EXAMINED = """
    SELECT channel, priority, is_due, nth FROM messages.due_channels('t', %s, %s, messages.now(), %s, messages.now() - interval '1 day', %s, %s)
"""
# A slow reference: all pairs behind a channel, up to another one, and whether their first message is due.
PAIRS = """
    SELECT m.channel, m.priority, min(m.available_at) <= messages.now() AS is_due
    FROM messages.message AS m
    WHERE m.topic = 't' AND m.claim_id IS NULL AND m.channel > %s AND (%s::text IS NULL OR m.channel <= %s)
      AND m.available_at >= messages.now() - interval '1 day'
    GROUP BY m.channel, m.priority
    ORDER BY m.channel, m.priority
"""


def publish_at_random(queue: Queue, lot: Random) -> None:
    """Publish to some channels with one message or many of each priority, due, delayed and below the mark."""
    for n in range(lot.choice([3, 150, 400])):
        for priority in lot.sample(range(10), lot.choice([1, 1, 1, 2, 10])):
            wait = lot.choice(["-1 s", "1 hour", "-2 days"])
            queue.publish_many(lot.choice([1, 1, 1, 2, 70]), channel=f"c{n:03}", priority=priority, wait=wait)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 8))])
def test_it_visits_what_a_slow_reference_visits(queue: Queue, seed: int) -> None:
    lot = Random(seed)
    with queue.conn.transaction():
        queue.later("0")
        publish_at_random(queue, lot)

    for _ in range(20):
        after, upto = lot.choice(["", "c000", "c001", "c149x"]), lot.choice([None, "c002", "c100", "c399"])
        limit, looks = lot.choice([1, 7, 100, 10_000]), lot.choice([1, 40, 300, 10_000])
        visited = [tuple(row) for row in queue.rows(EXAMINED, [after, upto, limit, looks, lot.choice([2, 8])])]
        pairs = [(*row, nth) for nth, row in enumerate(queue.rows(PAIRS, [after, upto, upto]), start=1)]

        last = visited[-1][3] if visited else 0
        assert visited == [pair for pair in pairs[:last] if pair[2] or pair[3] >= looks]
        if any(pair[2] for pair in pairs[last:]) and len(visited) < limit:
            # It ended since it had examined enough, and behind a whole channel.
            assert (looks <= last <= looks + 75, pairs[last][0] > pairs[last - 1][0]) == (True, True)


@pytest.mark.parametrize("channels", [2_500, 20_000])
def test_delayed_channels_cost_little_more_than_their_entries(own_queue: Queue, channels: int) -> None:
    own_queue.publish_many(channels, channel=sql.SQL("'c' || n"), wait="1 hour")

    walk = "SELECT messages.due_channels('t', '', NULL, messages.now(), 1000, '-infinity', 2000)"

    assert own_queue.buffers(walk) < 1000
