"""The view messages.dead: dead messages, and the messages that replaced them."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_it_shows_dead_messages_with_their_content_and_error(queue: Queue) -> None:
    died = queue.publish(payload={"n": 1}, headers={"h": 1})
    queue.settle("fail", queue.claim(), ["boom"])

    (row,) = queue.rows("SELECT * FROM messages.dead")

    assert (row.id, row.result, row.error, row.payload, row.headers) == (died, "failed", "boom", {"n": 1}, {"h": 1})
    assert row.redriven_as is None


def test_success_and_cancelled_are_not_dead(queue: Queue) -> None:
    queue.publish()
    queue.settle("complete", queue.claim())
    queue.call("cancel", [queue.publish()])

    assert queue.rows("SELECT * FROM messages.dead") == []


def test_it_names_the_message_that_replaced_a_redriven_one(queue: Queue) -> None:
    died = queue.publish()
    queue.settle("fail", queue.claim(), ["boom"])

    put_back = queue.row("SELECT * FROM messages.redrive(%s)", [[died]]).message_id

    assert queue.row("SELECT id, redriven_as FROM messages.dead") == (died, put_back)
