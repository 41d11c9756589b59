"""explain_waiting: the reasons why an unlocked message waits, and ready if there is none."""

from __future__ import annotations

from tests.sql.queue import Queue


def codes(queue: Queue, message: int) -> list[str]:
    return [row.code for row in queue.rows("SELECT * FROM messages.explain(%s)", [message])]


def test_a_message_that_is_next_has_no_reason(queue: Queue) -> None:
    queue.call("register_worker", "w1", "h", 7, "1", ["t"], 10)
    message = queue.publish()

    row = queue.row("SELECT * FROM messages.explain(%s)", [message])

    assert row.code == "ready"
    assert row.reason.endswith(": the next claim takes it")


def test_all_reasons_are_shown_the_longest_lasting_first(queue: Queue) -> None:
    queue.publish()
    message = queue.publish()
    queue.call("pause", "t")

    assert codes(queue, message) == ["paused", "unhandled", "behind"]


def test_a_message_that_is_due_later_has_no_queue_position(queue: Queue) -> None:
    queue.call("register_worker", "w1", "h", 7, "1", ["t"], 10)
    queue.publish()
    message = queue.publish(wait="1 hour")

    assert codes(queue, message) == ["delayed"]
