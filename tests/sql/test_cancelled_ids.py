"""messages.cancelled_ids: which locks were lost because of a cancel."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_only_messages_that_were_cancelled_under_the_same_claim_are_returned(queue: Queue) -> None:
    cancelled, completed, running = queue.publish_many(3)
    claimed = queue.claim()
    queue.call("cancel", [cancelled])
    queue.settle("complete", [claimed[1]])

    assert queue.settle("cancelled_ids", claimed) == [cancelled]
    assert queue.message(running) is not None
    assert queue.archived(completed).result == "success"


def test_an_earlier_claim_is_not_returned(queue: Queue) -> None:
    published = queue.publish()
    stale = queue.claim()
    queue.settle("release", stale)
    queue.claim()
    queue.call("cancel", [published])

    assert queue.settle("cancelled_ids", stale) == []


def test_a_message_that_was_cancelled_while_it_waited_is_not_returned(queue: Queue) -> None:
    published = queue.publish()
    queue.call("cancel", [published])

    assert queue.call("cancelled_ids", [published], [None]) == []


def test_no_ids_return_nothing(queue: Queue) -> None:
    assert queue.call("cancelled_ids", [], []) == []
