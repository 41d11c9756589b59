"""messages.ready_topics: which topics have a due message, for requests that wait for one."""

from __future__ import annotations

from tests.sql.queue import Queue


def ready_topics(queue: Queue, *topics: str) -> list[str]:
    return [row[0] for row in queue.rows("SELECT messages.ready_topics(%s::text[])", [list(topics)])]


def test_it_lists_topics_with_a_due_message_in_their_order(queue: Queue) -> None:
    for topic in ("a", "b", "other"):
        queue.publish(topic)
    queue.publish("later", wait="1 hour")

    assert ready_topics(queue, "b", "later", "absent", "a") == ["b", "a"]


def test_a_locked_message_is_not_due(queue: Queue) -> None:
    queue.publish("a")
    queue.publish("b")
    queue.claim("a")

    assert ready_topics(queue, "a", "b") == ["b"]


def test_no_topics_return_none(queue: Queue) -> None:
    queue.publish("a")

    assert ready_topics(queue) == []
