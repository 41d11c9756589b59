"""messages.unblock: an operator makes messages wait for no predecessor any more."""

from __future__ import annotations

from collections.abc import Callable

from tests.sql.queue import Listener, Queue


def test_they_are_ready_at_once_and_notified(queue: Queue, listen: Callable[..., Listener]) -> None:
    last = queue.send(after=[queue.publish("first")]).id
    queue.arm()
    listener = listen("new_message")

    released = queue.call("unblock", [last])

    assert (released, listener.received()) == ([last], ["t"])
    assert [c.id for c in queue.claim()] == [last]


def test_their_successors_wait_for_them_as_before(queue: Queue) -> None:
    second = queue.send(after=[queue.publish("first")]).id
    third = queue.send(after=[second]).id

    queue.call("unblock", [second])
    queue.settle("complete", queue.claim())

    assert [c.id for c in queue.claim()] == [third]


def test_a_message_without_predecessors_is_left_alone(queue: Queue) -> None:
    delayed, ended = queue.publish(wait="1 hour"), queue.publish("ended")
    queue.settle("complete", queue.claim("ended"))

    assert queue.call("unblock", [delayed, ended, 4711]) == []
    assert queue.claim() == []


def test_the_operator_is_recorded(queue: Queue) -> None:
    last = queue.send(after=[queue.publish("first")]).id

    queue.call("unblock", [last])

    recorded = queue.row("SELECT action, topic, target FROM messages.audit")
    assert tuple(recorded) == ("unblock", "t", str(last))
