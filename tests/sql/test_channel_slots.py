"""messages.channel_slots: how many messages a claim may take of each channel."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.queue import Queue, Row

ROOMS = """
    SELECT r.slots, r.held, extract(epoch FROM r.until - messages.now())::float AS until_in
    FROM messages.channel_slots(messages.claim_policy('t', messages.now()), %s::text[], messages.now(), 10) AS r
"""


@pytest.fixture(autouse=True)
def stopped_clock(queue: Queue) -> None:
    queue.later("0")


def counted(queue: Queue, *channels: str) -> Row:
    return queue.row(ROOMS, [list(channels)])


def slots(queue: Queue, *channels: str) -> list[int]:
    return list(counted(queue, *channels).slots)


def override(queue: Queue, channel: str, **columns: Any) -> None:
    names, values = ", ".join(columns), ", ".join(["%s"] * len(columns))
    queue.conn.execute(
        f"INSERT INTO messages.channel (topic, channel, {names}) VALUES ('t', %s, {values})".encode(),
        [channel, *columns.values()],
    )


def test_running_messages_use_slots_of_channel_concurrency(queue: Queue) -> None:
    queue.policy(channel_concurrency=3)
    queue.publish_many(2, channel="a")
    queue.publish_many(3, channel="b")
    queue.publish_many(5, "u", channel="c")
    queue.publish_many(5)
    queue.claim("t", "u")

    assert slots(queue, "a", "b", "c") == [1, 0, 3]
    assert counted(queue, "a", "b").held is True
    assert counted(queue, "a", "c").held is False


def test_without_a_free_slot_the_time_of_the_next_one_is_unknown(queue: Queue) -> None:
    queue.policy(channel_concurrency=1)
    queue.publish(channel="a")
    queue.claim()

    assert counted(queue, "a").until_in is None


@pytest.mark.parametrize(
    ("topic", "channel", "room"), [(2, 5, 5), (5, 2, 2), (2, 0, 10), (2, None, 2), (None, 4, 4), (None, None, 10)]
)
def test_the_limit_of_the_channel_wins_and_zero_lifts_it(
    queue: Queue, topic: int | None, channel: int | None, room: int
) -> None:
    queue.policy(channel_concurrency=topic)
    override(queue, "a", concurrency=channel)

    assert slots(queue, "a") == [room]


def test_a_limit_of_one_channel_leaves_the_others_unchanged(queue: Queue) -> None:
    queue.policy(channel_concurrency=3)
    override(queue, "b", concurrency=1)

    assert slots(queue, "a", "b", "c") == [3, 1, 3]


def test_with_a_minimum_interval_a_channel_has_one_slot_and_then_none_until_it_has_passed(queue: Queue) -> None:
    queue.policy(channel_min_interval="10 s")
    queue.publish_many(3, channel="a")
    assert slots(queue, "a") == [1]

    assert len(queue.claim()) == 1

    assert (slots(queue, "a"), counted(queue, "a").until_in) == ([0], 10)
    queue.later("9.999999 s")
    assert slots(queue, "a") == [0]
    queue.later("0.000001 s")
    assert slots(queue, "a") == [1]


def test_the_interval_of_the_channel_wins_and_zero_lifts_it(queue: Queue) -> None:
    queue.policy(channel_min_interval="10 s")
    override(queue, "a", min_interval="1 s")
    override(queue, "b", min_interval="0")
    for channel in "abc":
        queue.publish_many(20, channel=channel)
    queue.claim()

    queue.later("1 s")

    assert slots(queue, "a", "b", "c") == [1, 10, 0]


def test_a_paused_channel_has_no_slot_until_its_pause_ends(queue: Queue) -> None:
    override(queue, "a", paused_at="2026-01-01", resume_at=queue.value("SELECT messages.now() + interval '7 s'"))
    override(queue, "b", paused_at="2026-01-01")

    assert (slots(queue, "a", "b", "c"), counted(queue, "a", "b").until_in) == ([0, 0, 10], 7)
    queue.later("7 s")
    assert slots(queue, "a", "b") == [10, 0]
    assert counted(queue, "b").until_in is None


def test_an_ordered_channel_has_one_slot_for_its_first_priority_while_none_runs(queue: Queue) -> None:
    queue.policy(ordered=True, channel_concurrency=7)
    override(queue, "b", concurrency=5)
    assert slots(queue, "a", "a", "b") == [1, 0, 1]

    queue.publish(channel="a")
    queue.claim()

    assert slots(queue, "a", "b") == [0, 1]


def test_a_hold_counts_while_its_message_waits(queue: Queue) -> None:
    queue.policy(ordered=True)
    published = queue.publish(channel="a")
    queue.conn.execute(
        "INSERT INTO messages.rate (kind, topic, channel, blocked_until, blocked_by) VALUES ('channel', 't', 'a', messages.now() + interval '9 s', %s)",
        [published],
    )

    assert (slots(queue, "a"), counted(queue, "a").until_in) == ([0], 9)
    queue.call("cancel", [published])
    assert slots(queue, "a") == [1]


def test_a_channel_that_another_claim_counts_has_no_slot_and_is_worth_another_claim_at_once(
    queue: Queue, other: Queue
) -> None:
    queue.policy(channel_concurrency=5)
    with queue.conn.transaction():
        slots(queue, "a", "b")
    with other.conn.transaction():
        slots(other, "a")

        row = counted(queue, "a", "b")

    assert (row.slots, row.held, row.until_in) == ([0, 5], True, 0)


def test_a_channel_that_another_claim_has_just_used_counts_the_messages_of_that_claim(
    queue: Queue, other: Queue
) -> None:
    """The second claim waits for the lock, and reads with a snapshot that it takes afterwards."""
    queue.policy(channel_concurrency=2)
    queue.publish_many(4, channel="a")
    queue.claim(limit=1)

    assert len(other.claim()) == 1
    assert slots(queue, "a") == [0]
