"""messages.count_live: all live messages of a topic, whatever their state, and of no other."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


def test_ready_delayed_and_running_messages_with_and_without_a_channel_are_counted(queue: Queue) -> None:
    queue.publish_many(3)
    queue.publish(wait="1 hour")
    queue.publish_many(2, channel="c")
    queue.publish_many(7, "t2")
    queue.claim(limit=2)

    assert queue.call("count_live", "t") == 6
    assert queue.call("count_live", "unknown") == 0


@pytest.mark.newest
def test_it_reads_only_rows_of_the_topic(own_queue: Queue) -> None:
    own_queue.publish_many(5000, "other")
    own_queue.publish_many(3)

    assert own_queue.buffers("SELECT messages.count_live('t')") < 60
