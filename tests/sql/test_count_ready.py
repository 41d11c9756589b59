"""messages.count_ready: how many messages a claim could take."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


@pytest.mark.parametrize("channel", [None, "c"])
def test_it_counts_messages_that_are_not_locked_not_delayed_and_not_expired(queue: Queue, channel: str | None) -> None:
    queue.publish_many(5, channel=channel)
    queue.publish(channel=channel, wait="1 hour")
    queue.publish(channel=channel, expires_at="2000-01-01")
    queue.claim(limit=2)

    assert queue.call("count_ready", ["t"]) == 3


def test_it_counts_the_given_topics(queue: Queue) -> None:
    for topic in ("a", "b", "c"):
        queue.publish(topic)

    assert queue.call("count_ready", ["a", "c", "absent"]) == 2
