"""messages.purge_topic: a topic is emptied of what waits, batch by batch."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.sql.queue import Queue


def test_it_deletes_what_waits_batch_by_batch_and_nothing_else(queue: Queue) -> None:
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


def test_what_was_published_later_stays(queue: Queue) -> None:
    *_, last = queue.publish_many(3)
    later = queue.publish(priority=0)

    assert queue.call("purge_topic", "t", 1000, last) == 3
    assert queue.ids() == [later]


def test_a_row_that_somebody_holds_is_not_waited_for(queue: Queue, other: Queue) -> None:
    held, _ = queue.publish_many(2)
    with other.conn.transaction():
        other.conn.execute("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [held])

        assert queue.call("purge_topic", "t") == 1
    assert queue.ids() == [held]


@pytest.mark.parametrize("given", [(None,), ("t", 0), ("t", 10_001), ("t", None)])
def test_what_cannot_be_is_refused(queue: Queue, given: tuple[Any, ...]) -> None:
    with pytest.raises(psycopg.DataError):
        queue.call("purge_topic", *given)
