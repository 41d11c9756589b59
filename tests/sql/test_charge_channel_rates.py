"""messages.charge_channel_rates: a claim closes the channels that it took from for their minimum interval."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue

CLOSED = """
    SELECT channel, extract(epoch FROM free_at - messages.now())::float AS closed_for
    FROM messages.rate WHERE kind = 'channel' AND topic = 't' AND free_at > '-infinity' ORDER BY channel
"""


@pytest.fixture(autouse=True)
def stopped_clock(queue: Queue) -> None:
    queue.later("0")


def closed(queue: Queue) -> dict[str, float]:
    return {row.channel: row.closed_for for row in queue.rows(CLOSED)}


def test_only_channels_that_were_claimed_from_are_charged(queue: Queue) -> None:
    queue.policy(channel_min_interval="10 s")
    for channel in "abc":
        queue.publish(channel=channel)

    queue.claim(limit=2, after_channels={"t": "a"})

    assert closed(queue) == {"b": 10, "c": 10}


def test_each_channel_is_charged_with_its_own_interval(queue: Queue) -> None:
    queue.policy(channel_min_interval="10 s")
    queue.conn.execute(
        "INSERT INTO messages.channel (topic, channel, min_interval) VALUES ('t', 'b', '3 s'), ('t', 'c', '0'), ('t', 'd', NULL)"
    )
    for channel in "abcd":
        queue.publish(channel=channel)

    queue.claim()

    assert closed(queue) == {"a": 10, "b": 3, "d": 10}


def test_an_interval_of_a_single_channel_is_charged_too(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.channel (topic, channel, min_interval) VALUES ('t', 'b', '3 s')")
    for channel in "ab":
        queue.publish(channel=channel)

    queue.claim()

    assert closed(queue) == {"b": 3}


def test_channels_without_an_interval_are_not_written(queue: Queue) -> None:
    queue.policy(channel_concurrency=1)
    queue.publish(channel="a")

    queue.claim()

    assert closed(queue) == {}


def test_a_message_that_expired_instead_of_being_claimed_is_not_charged(queue: Queue) -> None:
    queue.policy(channel_min_interval="10 s")
    queue.publish(channel="a", expires_at="2026-01-01")

    assert queue.claim() == []

    assert closed(queue) == {}
