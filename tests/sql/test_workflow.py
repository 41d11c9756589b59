"""messages.workflow: the neighbours of a message, each with its state."""

from __future__ import annotations

from tests.sql.queue import Queue


def neighbours(queue: Queue, message_id: int) -> list[tuple[object, ...]]:
    return [tuple(row) for row in queue.rows("SELECT * FROM messages.workflow(%s)", [message_id])]


def test_both_sides_are_shown_with_states_and_policies(queue: Queue) -> None:
    dead, running, waiting = queue.publish("dead"), queue.publish("running"), queue.publish("waiting", wait="1 hour")
    middle = queue.send(after=[dead, running, waiting]).id
    last = queue.send(topic="last", after=[middle], after_failed="run").id
    queue.settle("fail", queue.claim("dead"), ["boom"])
    queue.claim("running")

    assert neighbours(queue, middle) == [
        ("before", dead, "dead", "failed", "hold"),
        ("before", running, "running", "running", "hold"),
        ("before", waiting, "waiting", "delayed", "hold"),
        ("after", last, "last", "blocked", "run"),
    ]
    assert neighbours(queue, last) == [("before", middle, "t", "blocked", "run")]


def test_of_a_message_whose_row_is_gone_the_result_is_still_known(queue: Queue) -> None:
    first = queue.publish()
    last = queue.send(after=[first]).id
    queue.settle("reject", queue.claim(), ["no"])
    queue.conn.execute("DELETE FROM messages.message_archive")

    assert neighbours(queue, last) == [("before", first, None, "rejected", "hold")]


def test_a_message_without_neighbours_returns_none(queue: Queue) -> None:
    assert neighbours(queue, queue.publish()) == []
    assert neighbours(queue, 4711) == []


def test_at_most_a_hundred_are_returned_of_each_side(queue: Queue) -> None:
    firsts = queue.publish_many(150)
    last = queue.send(after=firsts).id

    assert len(neighbours(queue, last)) == 100
