"""messages.explain_blocked: which predecessors a message waits for, and the fix if one will not end by itself."""

from __future__ import annotations

from tests.sql.queue import Queue, Row


def why(queue: Queue, message_id: int) -> list[Row]:
    return queue.rows("SELECT * FROM messages.explain(%s)", [message_id])


def test_predecessors_that_have_not_ended_are_named(queue: Queue) -> None:
    first, second = queue.publish_many(2)
    last = queue.send(after=[first, second]).id

    (reason, *_) = why(queue, last)

    assert reason.code == "after"
    assert f"for messages {first}, {second}, which have not ended" in reason.reason
    assert reason.detail["waits_for"] == [first, second]
    assert "delayed" not in [row.code for row in why(queue, last)]


def test_a_dead_predecessor_comes_first_with_its_fix(queue: Queue) -> None:
    dead, live = queue.publish("dead"), queue.publish("live")
    last = queue.send(after=[live, dead]).id
    queue.settle("fail", queue.claim("dead"), ["boom"])

    (first, second, *_) = why(queue, last)

    assert (first.code, second.code) == ("after_dead", "after")
    assert f"message {dead}, which is dead (failed)" in first.reason
    assert f"`pgrouse redrive {dead}`" in first.reason
    assert f"`pgrouse message unblock {last}`" in first.reason


def test_a_cancelled_predecessor_cannot_be_redriven(queue: Queue) -> None:
    first = queue.publish()
    last = queue.send(after=[first]).id
    queue.call("cancel", [first])

    (reason, *_) = why(queue, last)

    assert "was cancelled" in reason.reason
    assert "redrive" not in reason.reason


def test_of_many_predecessors_ten_are_named_and_the_others_counted(queue: Queue) -> None:
    last = queue.send(after=queue.publish_many(25)).id

    assert "and 15 more, which have not ended" in why(queue, last)[0].reason


def test_a_delayed_message_is_only_delayed(queue: Queue) -> None:
    assert why(queue, queue.publish(wait="1 hour"))[0].code == "delayed"
