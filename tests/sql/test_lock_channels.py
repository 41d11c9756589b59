"""messages.lock_channels: the rows that prevent two claims from counting the same channel at once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.queue import Queue

LOCK = """
    SELECT l.channel
    FROM unnest(messages.lock_channels('t', %s::text[])) WITH ORDINALITY
      AS l (kind, topic, channel, free_at, blocked_until, blocked_by, nth)
    ORDER BY l.nth
"""


def lock(queue: Queue, *channels: str) -> list[str | None]:
    return [row.channel for row in queue.rows(LOCK, [list(channels)])]


def test_it_returns_one_row_for_each_channel_in_their_order(queue: Queue) -> None:
    assert lock(queue, "b", "a", "c") == ["b", "a", "c"]
    assert lock(queue, "c", "d", "b", "b") == ["c", "d", "b", "b"]


def test_a_row_that_another_transaction_holds_is_not_waited_for(queue: Queue, other: Queue) -> None:
    lock(queue, "a", "b", "c")
    with other.conn.transaction():
        lock(other, "b")

        assert lock(queue, "a", "b", "c") == ["a", None, "c"]
    assert lock(queue, "a", "b", "c") == ["a", "b", "c"]


def test_rows_of_other_topics_and_kinds_are_separate(queue: Queue, other: Queue) -> None:
    with other.conn.transaction():
        other.conn.execute(
            "INSERT INTO messages.rate (kind, topic, channel) VALUES ('channel', 'u', 'a'), ('dequeue', 't', 'a')"
        )

        assert lock(queue, "a") == ["a"]


@pytest.mark.parametrize("known", [True, False])
def test_two_transactions_can_lock_ten_thousand_channels_each(queue: Queue, other: Queue, known: bool) -> None:
    channels = [f"c{n:05}" for n in range(10_000)]
    if known:
        lock(queue, *channels)

    with queue.conn.transaction():
        assert lock(queue, *channels) == channels

        assert lock(other, *channels) == [None] * 10_000
        assert lock(other, "another") == (["another"] if known else [None])


# messages.create_channel_rates: the rows of channels that were never counted before.


def note(queue: Queue, *channels: str) -> bool:
    return bool(queue.call("create_channel_rates", "t", list(channels)))


def recorded(queue: Queue) -> list[Any]:
    return [
        tuple(row)
        for row in queue.rows("SELECT kind, topic, channel, free_at = '-infinity' FROM messages.rate ORDER BY 3")
    ]


def test_a_new_channel_gets_a_row_that_holds_nothing_back(queue: Queue) -> None:
    assert note(queue, "b", "a", "b") is True

    assert recorded(queue) == [("channel", "t", "a", True), ("channel", "t", "b", True)]


def test_an_existing_row_is_not_changed(queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.rate (kind, topic, channel, free_at) VALUES ('channel', 't', 'a', '2026-01-01')"
    )

    assert note(queue, "a") is False

    assert recorded(queue) == [("channel", "t", "a", False)]


def test_two_sessions_that_add_the_same_channels_do_not_wait_for_each_other(queue: Queue, other: Queue) -> None:
    other.conn.execute("SET lock_timeout = '1s'")
    with queue.conn.transaction():
        assert note(queue, "a") is True

        assert note(other, "a", "b") is False

    assert note(other, "a", "b") is True
