"""messages.ready_topics: in which topics a message is due, for the requests that wait for one."""

from __future__ import annotations

from tests.sql.queue import Queue


def ready_topics(queue: Queue, *topics: str) -> list[str]:
    return [row[0] for row in queue.rows("SELECT messages.ready_topics(%s::text[])", [list(topics)])]


def test_it_lists_those_in_which_a_message_is_due_in_their_order(queue: Queue) -> None:
    for topic in ("a", "b", "other"):
        queue.publish(topic)
    queue.publish("later", wait="1 hour")

    assert ready_topics(queue, "b", "later", "absent", "a") == ["b", "a"]


def test_a_message_that_is_locked_is_not_due(queue: Queue) -> None:
    queue.publish("a")
    queue.publish("b")
    queue.claim("a")

    assert ready_topics(queue, "a", "b") == ["b"]


def test_of_no_topics_there_are_none(queue: Queue) -> None:
    queue.publish("a")

    assert ready_topics(queue) == []
