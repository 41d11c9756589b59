"""messages.release: messages that were never started keep their position in the queue. (What release and defer share: test_return_attempts.py.)"""

from __future__ import annotations

from collections.abc import Callable

from tests.sql.queue import Listener, Queue


def test_a_released_message_keeps_its_position_in_the_queue(queue: Queue) -> None:
    first, second, third = queue.publish_many(3)
    claimed = queue.claim(limit=2)

    queue.settle("release", claimed)

    assert [c.id for c in queue.claim()] == [first, second, third]


def test_a_release_leaves_no_entry_in_the_history(queue: Queue) -> None:
    published = queue.publish()

    queue.settle("release", queue.claim())

    assert queue.message(published).history is None


def test_a_release_notifies_another_worker(queue: Queue, listen: Callable[..., Listener]) -> None:
    listener = listen("new_message")
    queue.publish_many(2)
    claimed = queue.claim()
    queue.arm("another")

    queue.settle("release", claimed)

    assert listener.received() == ["t"]
