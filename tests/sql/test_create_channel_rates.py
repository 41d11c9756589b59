"""messages.create_channel_rates: the rows of channels that were never counted before."""

from __future__ import annotations

from typing import Any

from tests.sql.queue import Queue


def note(queue: Queue, *channels: str) -> bool:
    return bool(queue.call("create_channel_rates", "t", list(channels)))


def noted(queue: Queue) -> list[Any]:
    return [
        tuple(row)
        for row in queue.rows("SELECT kind, topic, channel, free_at = '-infinity' FROM messages.rate ORDER BY 3")
    ]


def test_a_new_channel_gets_a_row_that_holds_nothing_back(queue: Queue) -> None:
    assert note(queue, "b", "a", "b") is True

    assert noted(queue) == [("channel", "t", "a", True), ("channel", "t", "b", True)]


def test_what_is_there_stays_as_it_is(queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.rate (kind, topic, channel, free_at) VALUES ('channel', 't', 'a', '2026-01-01')"
    )

    assert note(queue, "a") is False

    assert noted(queue) == [("channel", "t", "a", False)]


def test_two_that_note_the_same_channels_do_not_wait_for_each_other(queue: Queue, other: Queue) -> None:
    other.conn.execute("SET lock_timeout = '1s'")
    with queue.conn.transaction():
        assert note(queue, "a") is True

        assert note(other, "a", "b") is False

    assert note(other, "a", "b") is True
