"""messages.claim_channels: the messages of one topic with a channel. (What a claim promises as a whole is in test_claim.py.)"""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.queue import Queue

CLAIM = "SELECT id, channel FROM messages.claim_channels(1, 'w', messages.now(), 't', %s, %s, NULL)"


@pytest.fixture(autouse=True)
def bytes_left(queue: Queue) -> None:
    """Let the bytes not be what ends the walk."""
    queue.conn.execute("SET messages.bytes_left = 1000000")


def claim(queue: Queue, after: str | None, limit: int) -> list[Any]:
    return queue.rows(CLAIM, [after, limit])


@pytest.mark.parametrize(
    ("after", "expected"), [(None, "abc"), ("a", "bca"), ("b", "cab"), ("c", "abc"), ("aa", "bca"), ("z", "abc")]
)
def test_it_goes_once_round_from_the_given_channel(queue: Queue, after: str | None, expected: str) -> None:
    for channel in "cab":
        queue.publish(channel=channel)

    assert "".join(row.channel for row in claim(queue, after, 10)) == expected


def test_a_channel_gives_at_most_an_eighth_of_the_limit_in_one_round(queue: Queue) -> None:
    queue.publish_many(100, channel="a")

    assert [len(claim(queue, None, limit)) for limit in (80, 16, 4)] == [10, 2, 1]


def test_channels_whose_messages_are_all_delayed_are_passed_over(queue: Queue) -> None:
    queue.publish(channel="a", wait="1 hour")
    ready = queue.publish(channel="b")
    queue.publish(channel="c", wait="1 hour")

    assert [row.id for row in claim(queue, None, 10)] == [ready]


def test_channels_are_ordered_by_their_bytes_whatever_the_collation_of_the_server(queue: Queue) -> None:
    for channel in ("é", "Z", "a", "10", "9"):
        queue.publish(channel=channel)

    assert [row.channel for row in claim(queue, None, 10)] == ["10", "9", "Z", "a", "é"]
