"""messages.clamp_channel_rates: an interval that was shortened or lifted applies at once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.queue import Queue, Row

WRITTEN = "SELECT extract(epoch FROM free_at - messages.now())::float AS free_in FROM messages.rate WHERE channel = 'a'"
CLAMP = """
    SELECT e.channel, e.blocked_by,
           extract(epoch FROM nullif(e.free_at, '-infinity') - messages.now())::float AS free_in
    FROM unnest(messages.clamp_channel_rates(
      messages.claim_policy('t', messages.now()), messages.lock_channels('t', %s::text[]))) AS e
"""


@pytest.fixture(autouse=True)
def stopped_clock(queue: Queue) -> None:
    queue.later("0")
    queue.policy(channel_min_interval="1 day")
    for channel in "abc":
        queue.publish_many(3, channel=channel)
    queue.claim()


def clamp(queue: Queue, *channels: str) -> list[Row]:
    return queue.rows(CLAMP, [list(channels)])


def override(queue: Queue, channel: str, interval: str) -> None:
    queue.conn.execute(
        "INSERT INTO messages.channel (topic, channel, min_interval) VALUES ('t', %s, %s)", [channel, interval]
    )


def test_a_lifted_interval_opens_the_channel_at_once(queue: Queue) -> None:
    queue.policy(channel_min_interval=None, channel_concurrency=5)

    assert len(queue.claim()) == 6


def test_a_shortened_interval_counts_from_the_first_call_and_not_from_each(queue: Queue) -> None:
    queue.policy(channel_min_interval="10 s")
    queue.later("1 hour")

    assert queue.claim() == []
    queue.later("9.999 s")
    assert queue.claim() == []
    queue.later("1 ms")
    assert len(queue.claim()) == 3


def test_a_longer_interval_applies_from_the_next_message(queue: Queue) -> None:
    queue.policy(channel_min_interval="20 days")

    queue.later("1 day")

    assert len(queue.claim()) == 3


def test_the_interval_of_the_channel_wins_and_other_channels_keep_theirs(queue: Queue) -> None:
    override(queue, "a", "10 s")
    override(queue, "b", "0")

    seen = clamp(queue, "a", "b", "c")

    assert [(row.channel, row.free_in) for row in seen] == [("a", 10), ("b", None), ("c", 86400)]
    assert queue.value(WRITTEN) == 10


def test_a_channel_with_two_entries_and_a_locked_channel_keep_their_times(queue: Queue, other: Queue) -> None:
    override(queue, "a", "10 s")
    with other.conn.transaction():
        other.rows("SELECT FROM messages.rate WHERE channel = 'b' FOR UPDATE")

        seen = clamp(queue, "a", "a", "b", "c")

    assert [(row.channel, row.free_in) for row in seen] == [("a", 10), ("a", 10), (None, None), ("c", 86400)]


def test_a_hold_of_a_channel_stays(queue: Queue) -> None:
    queue.conn.execute("UPDATE messages.rate SET blocked_by = 7")
    override(queue, "a", "10 s")

    assert [row.blocked_by for row in clamp(queue, "a", "c")] == [7, 7]


def explained(queue: Queue, message_id: int) -> Any:
    return [row.reason for row in queue.rows("SELECT * FROM messages.explain(%s)", [message_id])]


def test_explain_shows_the_current_interval(queue: Queue) -> None:
    queue.policy(channel_min_interval="10 s")

    (waits,) = [row.id for row in queue.rows("SELECT max(id) AS id FROM messages.message WHERE channel = 'a'")]

    assert any("the next in 10s" in reason for reason in explained(queue, waits))


def test_a_channel_that_was_never_claimed_from_waits_for_no_interval(queue: Queue) -> None:
    published = queue.publish(channel="new")

    assert not any("the next in" in reason for reason in explained(queue, published))
