"""messages.claim_cursor: where the last claim of a walk ended."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue

KNOWN = "SELECT walk, at FROM messages.claim_cursor ORDER BY n"


def known(queue: Queue) -> list[tuple[str, str]]:
    return [(row.walk.split()[0], row.at) for row in queue.rows(KNOWN)]


def test_it_is_the_newest_position_of_the_walk(queue: Queue) -> None:
    for walk, at in (("channels t", "a"), ("channels u", "b"), ("channels t", "c"), ("channels v", "d")):
        queue.call("save_claim_cursor", walk, at, None)

    assert queue.call("read_claim_cursor", "channels t") == "c"
    assert queue.call("read_claim_cursor", "channels of nothing") is None


def test_claims_with_a_given_start_read_and_write_none(queue: Queue) -> None:
    for topic in "ab":
        for channel in "xyz":
            queue.publish(topic, channel=channel)
    queue.call("save_claim_cursor", "channels a", "x", None)

    claimed = queue.claim("a", "b", limit=4, after_topic="b", after_channels={"a": "y", "b": ""})

    assert "".join(c.channel for c in claimed if c.topic == "a") == "zxy"
    assert known(queue) == [("channels", "x")]


@pytest.mark.parametrize("channel", [None, "c"])
def test_a_claim_of_one_topic_without_channels_writes_none(queue: Queue, channel: str | None) -> None:
    queue.publish(channel=channel)

    queue.claim()

    assert known(queue) == ([("channels", "c")] if channel else [])


def test_two_claims_at_once_do_not_wait_for_each_other(queue: Queue, other: Queue) -> None:
    for channel in "abc":
        queue.publish_many(2, channel=channel)
    other.conn.execute("SET lock_timeout = '1 ms'")

    with queue.conn.transaction():
        first = queue.claim(limit=1)
        second = other.claim(limit=1)

    assert [c.channel for c in (*first, *second)] == ["a", "a"]
