"""explain_waiting: a message that is not locked. What keeps it, and ready if nothing does."""

from __future__ import annotations

from tests.sql.queue import Queue


def codes(queue: Queue, message: int) -> list[str]:
    return [row.code for row in queue.rows("SELECT * FROM messages.explain(%s)", [message])]


def test_nothing_keeps_a_message_that_is_next(queue: Queue) -> None:
    queue.call("register_worker", "w1", "h", 7, "1", ["t"], 10)
    message = queue.publish()

    row = queue.row("SELECT * FROM messages.explain(%s)", [message])

    assert row.code == "ready"
    assert row.reason.endswith("nothing keeps it: the next claim takes it")


def test_all_that_keeps_it_is_told_what_lasts_longest_first(queue: Queue) -> None:
    queue.publish()
    message = queue.publish()
    queue.call("pause", "t")

    assert codes(queue, message) == ["paused", "unhandled", "behind"]


def test_of_what_is_due_later_no_place_in_the_queue_is_told(queue: Queue) -> None:
    queue.call("register_worker", "w1", "h", 7, "1", ["t"], 10)
    queue.publish()
    message = queue.publish(wait="1 hour")

    assert codes(queue, message) == ["delayed"]
