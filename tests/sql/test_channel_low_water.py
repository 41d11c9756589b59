"""messages.channel_low_water: the low-water mark of one topic's channels."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.sql.queue import Queue


def test_it_is_the_mark_of_all_channels_of_the_topic(queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.low_water VALUES ('t', -1, '2026-01-01 00:00+00'), ('t', 5, now()), ('u', -1, now())"
    )

    assert queue.call("channel_low_water", "t") == datetime(2026, 1, 1, tzinfo=UTC)


def test_without_a_mark_everything_is_above_it(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.low_water VALUES ('recorded', -1, NULL)")

    assert queue.value(
        "SELECT messages.channel_low_water('recorded') = '-infinity' AND messages.channel_low_water('t') = '-infinity'"
    )


def test_a_message_that_returns_with_its_old_available_at_lowers_it(queue: Queue) -> None:
    """Released, or retried in an ordered channel, where it keeps its position."""
    queue.policy("ordered", ordered=True, max_attempts=5)
    for topic, settle in (("t", "release"), ("ordered", "retry")):
        published = queue.publish(topic, channel="c", wait="-5 s")
        claimed = queue.claim(topic)
        queue.conn.execute("UPDATE messages.low_water SET at = now()")

        queue.settle(settle, claimed, *([["why"]] if settle == "retry" else []))

        assert queue.call("channel_low_water", topic) == queue.message(published).available_at


def test_a_message_that_returns_with_a_later_available_at_leaves_it(queue: Queue) -> None:
    queue.policy(max_attempts=5, backoff={"kind": "none"})
    queue.publish(channel="c", wait="-5 s")
    claimed = queue.claim()
    queue.conn.execute("UPDATE messages.low_water SET at = now()")
    before = queue.call("channel_low_water", "t")

    queue.settle("retry", claimed, ["why"])

    assert queue.call("channel_low_water", "t") == before
