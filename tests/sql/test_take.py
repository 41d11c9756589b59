"""messages.take: one place of a claim's walk. (What a claim promises as a whole is in test_claim.py.)"""

from __future__ import annotations

from typing import Any

from tests.sql.queue import Queue

TAKE = """
    SELECT * FROM messages.take(
      p_claim_id => 77, p_worker => 'w', p_now => messages.now(), p_topic => 't', p_channel => %(channel)s, p_priority => 5::smallint,
      p_low => %(low)s, p_limit => 10, p_lock_for => NULL)
"""


def take(queue: Queue, channel: str | None = None, low: str = "-infinity", bytes_left: int = 1_000_000) -> list[Any]:
    queue.conn.execute("SELECT set_config('messages.bytes_left', %s, false)", [str(bytes_left)])
    return [row.id for row in queue.rows(TAKE, {"channel": channel, "low": low})]


def test_it_takes_from_one_topic_and_priority_without_a_channel(queue: Queue) -> None:
    wanted = queue.publish()
    queue.publish(priority=4)
    queue.publish("u")
    queue.publish(channel="c")

    assert take(queue) == [wanted]


def test_it_takes_from_one_channel(queue: Queue) -> None:
    wanted = queue.publish(channel="c")
    queue.publish(channel="d")
    queue.publish()

    assert take(queue, channel="c") == [wanted]


def test_it_reads_nothing_below_the_position_it_is_given(queue: Queue) -> None:
    queue.publish(available_at="2026-01-01")
    wanted = queue.publish(available_at="2026-01-02")

    assert take(queue, low="2026-01-02") == [wanted]


def test_a_place_that_was_taken_from_is_entered_into_the_directory_of_marks(queue: Queue) -> None:
    queue.publish()

    take(queue)

    assert [tuple(row) for row in queue.rows("SELECT topic, priority, at FROM messages.low_water")] == [("t", 5, None)]


def test_channels_have_no_marks(queue: Queue) -> None:
    queue.publish(channel="c")

    take(queue, channel="c")

    assert queue.rows("SELECT * FROM messages.low_water") == []


def test_it_lowers_the_bytes_that_the_walk_may_still_hand_out(queue: Queue) -> None:
    first, second, _ = (queue.publish(body=b"x" * 100) for _ in range(3))

    with queue.conn.transaction():
        assert take(queue, bytes_left=150) == [first, second]
        assert queue.value("SELECT current_setting('messages.bytes_left')") == "-50"
