"""messages.next_channel: the walk over the channels of one topic."""

from __future__ import annotations

from typing import Any

from tests.sql.queue import Queue

NEXT = "SELECT channel, priority FROM messages.next_channel('t', %s, %s::smallint, messages.now())"


def walk(queue: Queue) -> list[Any]:
    found: list[Any] = []
    step = queue.row(NEXT, ["", 9])
    while step.channel is not None:
        found.append(tuple(step))
        step = queue.row(NEXT, list(step))
    return found


def test_it_visits_each_channel_and_priority_that_has_a_message_which_is_due(queue: Queue) -> None:
    for channel, priority in (("b", 5), ("a", 9), ("a", 0), ("b", 5), ("Z", 1)):
        queue.publish(channel=channel, priority=priority)
    queue.publish(channel="delayed", wait="1 hour")
    queue.publish()
    queue.publish("u", channel="a")

    assert walk(queue) == [("Z", 1), ("a", 0), ("a", 9), ("b", 5)]


def test_a_channel_whose_messages_are_all_locked_is_not_visited(queue: Queue) -> None:
    queue.publish(channel="a")
    queue.claim()
    queue.publish(channel="b")

    assert walk(queue) == [("b", 5)]


def test_it_never_reads_past_delayed_messages_one_by_one(own_queue: Queue) -> None:
    own_queue.publish_many(20_000, channel="a", wait="1 hour")
    own_queue.publish(channel="b")

    assert own_queue.buffers("SELECT messages.next_channel('t', '', 9::smallint, messages.now())") < 60
    assert walk(own_queue) == [("b", 5)]
