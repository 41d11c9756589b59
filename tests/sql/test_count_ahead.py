"""count_ahead: how many messages are claimed first."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue

AHEAD = "SELECT messages.count_ahead(m, messages.now(), %s) FROM messages.message AS m WHERE m.id = %s"


@pytest.mark.parametrize("channel", [None, "c"])
def test_more_urgent_messages_and_those_that_waited_longer_go_first(queue: Queue, channel: str | None) -> None:
    earlier = queue.publish(channel=channel)
    urgent = queue.publish(channel=channel, priority=1)
    mine = queue.publish(channel=channel)
    queue.publish(channel=channel)
    queue.publish(channel=channel, priority=9)
    queue.publish(channel=channel, priority=0, wait="1 hour")
    queue.publish(channel="another")

    assert queue.value(AHEAD, [1000, mine]) == 2
    assert queue.value(AHEAD, [1000, earlier]) == 1
    assert queue.value(AHEAD, [1000, urgent]) == 0


def test_running_messages_are_not_ahead(queue: Queue) -> None:
    queue.publish()
    mine = queue.publish()
    queue.claim(limit=1)

    assert queue.value(AHEAD, [1000, mine]) == 0


@pytest.mark.parametrize("channel", [None, "c"])
def test_it_counts_up_to_its_limit(queue: Queue, channel: str | None) -> None:
    queue.publish_many(8, channel=channel, priority=1)
    queue.publish_many(8, channel=channel)
    mine = queue.publish(channel=channel)

    assert queue.value(AHEAD, [12, mine]) == 12
    assert queue.value(AHEAD, [1000, mine]) == 16


@pytest.mark.newest
def test_its_cost_is_bounded_however_long_the_queue_is(own_queue: Queue) -> None:
    own_queue.publish_many(30_000)
    mine = own_queue.publish()
    own_queue.conn.execute("VACUUM ANALYZE messages.message")

    assert own_queue.buffers(AHEAD, [100, mine]) < 300
