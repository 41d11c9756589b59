"""messages.unblock: messages wait for nothing any more, because somebody says so."""

from __future__ import annotations

from collections.abc import Callable

from tests.sql.queue import Listener, Queue


def test_they_are_ready_at_once_and_rung_for(queue: Queue, listen: Callable[..., Listener]) -> None:
    last = queue.send(after=[queue.publish("first")]).id
    queue.arm()
    listener = listen("new_message")

    released = queue.call("unblock", [last])

    assert (released, listener.received()) == ([last], ["t"])
    assert [c.id for c in queue.claim()] == [last]


def test_what_comes_after_them_waits_for_them_as_before(queue: Queue) -> None:
    second = queue.send(after=[queue.publish("first")]).id
    third = queue.send(after=[second]).id

    queue.call("unblock", [second])
    queue.settle("complete", queue.claim())

    assert [c.id for c in queue.claim()] == [third]


def test_what_waits_for_no_other_is_left_alone(queue: Queue) -> None:
    delayed, ended = queue.publish(wait="1 hour"), queue.publish("ended")
    queue.settle("complete", queue.claim("ended"))

    assert queue.call("unblock", [delayed, ended, 4711]) == []
    assert queue.claim() == []


def test_it_is_noted_who_did_it(queue: Queue) -> None:
    last = queue.send(after=[queue.publish("first")]).id

    queue.call("unblock", [last])

    noted = queue.row("SELECT action, topic, target FROM messages.audit")
    assert tuple(noted) == ("unblock", "t", str(last))
