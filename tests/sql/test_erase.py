"""messages.erase: what delete and purge_topic share."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_other_messages_are_not_changed(queue: Queue) -> None:
    cancelled, waiting, other = queue.publish_many(3)
    queue.call("cancel", [cancelled])

    assert queue.call("erase", [waiting, cancelled]) == [waiting]

    assert (queue.ids(), queue.archived(cancelled).result) == ([other], "cancelled")


def test_a_claimed_message_is_left_alone(queue: Queue) -> None:
    published = queue.publish()
    queue.claim()

    assert queue.call("erase", [published]) == []
    assert queue.ids() == [published]
