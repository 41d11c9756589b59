"""messages.cancelled_ids: why a lock was lost."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_only_what_was_cancelled_under_the_same_claim_is_told(queue: Queue) -> None:
    cancelled, completed, running = queue.publish_many(3)
    claimed = queue.claim()
    queue.call("cancel", [cancelled])
    queue.settle("complete", [claimed[1]])

    assert queue.settle("cancelled_ids", claimed) == [cancelled]
    assert queue.message(running) is not None
    assert queue.archived(completed).result == "success"


def test_an_earlier_claim_lost_its_lock_for_another_reason(queue: Queue) -> None:
    published = queue.publish()
    stale = queue.claim()
    queue.settle("release", stale)
    queue.claim()
    queue.call("cancel", [published])

    assert queue.settle("cancelled_ids", stale) == []


def test_what_was_cancelled_while_it_waited_was_nobodys(queue: Queue) -> None:
    published = queue.publish()
    queue.call("cancel", [published])

    assert queue.call("cancelled_ids", [published], [None]) == []


def test_nothing_asked_is_nothing_told(queue: Queue) -> None:
    assert queue.call("cancelled_ids", [], []) == []
