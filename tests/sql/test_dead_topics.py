"""messages.dead_topics: which topics have dead messages."""

from __future__ import annotations

import pytest

from tests.sql.deaths import die, die_ago
from tests.sql.queue import Queue


def topics(queue: Queue) -> list[str]:
    return [row.topic for row in queue.rows("SELECT * FROM messages.dead_topics() AS t (topic)")]


def test_each_topic_with_dead_messages_is_listed_once_on_whatever_day_they_died(queue: Queue) -> None:
    die(queue, "b")
    die(queue, "b", settle="reject")
    die_ago(queue, "3 days", "a")
    die_ago(queue, "30 days", "C")

    assert topics(queue) == ["C", "a", "b"]


def test_topics_without_dead_messages_are_not_listed(queue: Queue) -> None:
    queue.publish()
    queue.settle("complete", queue.claim())

    assert topics(queue) == []


@pytest.mark.newest
def test_it_reads_the_index_topic_by_topic_and_not_all_dead_messages(own_queue: Queue) -> None:
    own_queue.publish_many(3000)
    claimed = own_queue.claim(limit=3000)
    own_queue.settle("fail", claimed, ["boom"] * 3000)
    own_queue.conn.execute("ANALYZE messages.message_archive")
    die(own_queue, "u")

    assert own_queue.buffers("SELECT * FROM messages.dead_topics()") < 200
