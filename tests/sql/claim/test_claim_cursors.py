"""The cursors and marks of claims."""

from __future__ import annotations

from typing import Any

from tests.sql.queue import Queue

# messages.add_low_water: the list of (topic, priority) pairs that have low-water marks.


def entries(queue: Queue) -> list[Any]:
    return [tuple(row) for row in queue.rows("SELECT topic, priority, at FROM messages.low_water ORDER BY 1, 2")]


def test_a_claim_from_channels_adds_one_entry_for_all_of_them(queue: Queue) -> None:
    for channel in "ab":
        for priority in (0, 5):
            queue.publish(channel=channel, priority=priority)

    queue.claim()

    assert entries(queue) == [("t", -1, None)]


# messages.channel_low_water: the low-water mark of one topic's channels.


def test_a_message_that_returns_with_its_old_available_at_lowers_it(queue: Queue) -> None:
    """Released, or retried in an ordered channel, where it keeps its position."""
    queue.policy("ordered", ordered=True, max_attempts=5)
    for topic, settle in (("t", "release"), ("ordered", "retry")):
        published = queue.publish(topic, channel="c", wait="-5 s")
        claimed = queue.claim(topic)
        queue.conn.execute("UPDATE messages.low_water SET at = now()")

        queue.settle(settle, claimed, *([["why"]] if settle == "retry" else []))

        assert queue.call("channel_low_water", topic) == queue.message(published).available_at


# read_claim_cursor: messages.claim_cursor: where the last claim of a walk ended.

KNOWN = "SELECT walk, at FROM messages.claim_cursor ORDER BY n"


def known(queue: Queue) -> list[tuple[str, str]]:
    return [(row.walk.split()[0], row.at) for row in queue.rows(KNOWN)]


def test_claims_with_a_given_start_read_and_write_none(queue: Queue) -> None:
    for topic in "ab":
        for channel in "xyz":
            queue.publish(topic, channel=channel)
    queue.call("save_claim_cursor", "channels a", "x", None)

    claimed = queue.claim("a", "b", limit=4, after_topic="b", after_channels={"a": "y", "b": ""})

    assert "".join(c.channel for c in claimed if c.topic == "a") == "zxy"
    assert known(queue) == [("channels", "x")]


def test_two_claims_at_once_do_not_wait_for_each_other(queue: Queue, other: Queue) -> None:
    for channel in "abc":
        queue.publish_many(2, channel=channel)
    other.conn.execute("SET lock_timeout = '1 ms'")

    with queue.conn.transaction():
        first = queue.claim(limit=1)
        second = other.claim(limit=1)

    assert [c.channel for c in (*first, *second)] == ["a", "a"]


# messages.save_claim_cursor: records where a claim ended.


def test_an_unchanged_position_is_not_written_again(queue: Queue) -> None:
    for at, last in (("a", None), ("a", "a"), ("b", "a")):
        queue.call("save_claim_cursor", "channels t", at, last)

    assert [row.at for row in queue.rows("SELECT at FROM messages.claim_cursor ORDER BY n")] == ["a", "b"]
