"""messages.may_have_channels: whether a claim of a topic has to look at channels."""

from __future__ import annotations

from tests.sql.queue import Queue


def may_have_channels(queue: Queue) -> bool:
    answer: bool = queue.value("SELECT * FROM messages.may_have_channels('t')")
    return answer


def test_it_is_true_while_a_message_with_a_channel_is_not_locked(queue: Queue) -> None:
    queue.publish()
    queue.publish("u", channel="c")
    assert not may_have_channels(queue)

    queue.publish(channel="c", wait="1 hour")
    assert may_have_channels(queue)


def test_it_is_true_while_the_channels_have_a_low_water_mark(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.low_water (topic, priority) VALUES ('t', -1)")

    assert may_have_channels(queue)
