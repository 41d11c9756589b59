"""messages.erase: what delete and purge_topic have in common."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_nothing_of_another_message_is_touched(queue: Queue) -> None:
    cancelled, waiting, other = queue.publish_many(3)
    queue.call("cancel", [cancelled])

    assert queue.call("erase", [waiting, cancelled]) == [waiting]

    assert (queue.ids(), queue.archived(cancelled).result) == ([other], "cancelled")


def test_one_that_is_claimed_is_left_alone(queue: Queue) -> None:
    published = queue.publish()
    queue.claim()

    assert queue.call("erase", [published]) == []
    assert queue.ids() == [published]
