"""messages.purge_topic: deletes the waiting messages of a topic, batch by batch."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.sql.queue import Queue


def test_it_deletes_waiting_messages_batch_by_batch_and_no_others(queue: Queue) -> None:
    queue.publish_many(3)
    queue.publish_many(2, channel="c")
    queue.publish_many(2, wait="1 hour", priority=9)
    (runs,) = queue.claim(limit=1)
    other = queue.publish("other")

    deleted = [queue.call("purge_topic", "t", 4) for _ in range(3)]

    assert deleted == [4, 2, 0]
    assert queue.ids() == [runs.id, other]
    assert queue.rows("SELECT FROM messages.message_archive") == []
    audit = queue.rows("SELECT topic, detail FROM messages.audit WHERE action = 'purge_topic' ORDER BY id")
    assert [(row.topic, row.detail["count"]) for row in audit] == [("t", 4), ("t", 2)]


def test_messages_that_were_published_later_stay(queue: Queue) -> None:
    *_, last = queue.publish_many(3)
    later = queue.publish(priority=0)

    assert queue.call("purge_topic", "t", 1000, last) == 3
    assert queue.ids() == [later]


def test_a_locked_row_is_not_waited_for(queue: Queue, other: Queue) -> None:
    held, _ = queue.publish_many(2)
    with other.conn.transaction():
        other.conn.execute("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [held])

        assert queue.call("purge_topic", "t") == 1
    assert queue.ids() == [held]


@pytest.mark.parametrize("given", [(None,), ("t", 0), ("t", 10_001), ("t", None)])
def test_invalid_arguments_are_refused(queue: Queue, given: tuple[Any, ...]) -> None:
    with pytest.raises(psycopg.DataError):
        queue.call("purge_topic", *given)
