"""messages.lock_channels: the rows that keep two claims from counting the same channel at once."""

from __future__ import annotations

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


def test_it_gives_one_row_for_each_channel_in_their_order(queue: Queue) -> None:
    assert lock(queue, "b", "a", "c") == ["b", "a", "c"]
    assert lock(queue, "c", "d", "b", "b") == ["c", "d", "b", "b"]


def test_what_another_transaction_has_is_not_waited_for(queue: Queue, other: Queue) -> None:
    lock(queue, "a", "b", "c")
    with other.conn.transaction():
        lock(other, "b")

        assert lock(queue, "a", "b", "c") == ["a", None, "c"]
    assert lock(queue, "a", "b", "c") == ["a", "b", "c"]


def test_rows_of_other_topics_and_kinds_are_others(queue: Queue, other: Queue) -> None:
    with other.conn.transaction():
        other.conn.execute(
            "INSERT INTO messages.rate (kind, topic, channel) VALUES ('channel', 'u', 'a'), ('dequeue', 't', 'a')"
        )

        assert lock(queue, "a") == ["a"]


@pytest.mark.parametrize("known", [True, False])
def test_ten_thousand_channels_fit_into_one_transaction_beside_another(queue: Queue, other: Queue, known: bool) -> None:
    channels = [f"c{n:05}" for n in range(10_000)]
    if known:
        lock(queue, *channels)

    with queue.conn.transaction():
        assert lock(queue, *channels) == channels

        assert lock(other, *channels) == [None] * 10_000
        assert lock(other, "another") == (["another"] if known else [None])
