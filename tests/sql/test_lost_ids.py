"""messages.lost_ids: which messages a caller tried to settle without holding them."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_a_message_that_was_just_settled_is_not_lost(queue: Queue) -> None:
    assert queue.call("lost_ids", [1, 2], [7, 7], [2, 1], "success") == []


def test_an_unknown_message_is_lost(queue: Queue) -> None:
    assert queue.call("lost_ids", [1, 2], [7, 7], [2], "success") == [1]


def test_a_message_that_an_earlier_try_archived_with_the_same_claim_and_result_is_not_lost(queue: Queue) -> None:
    published = queue.publish()
    (claimed,) = queue.claim()
    queue.settle("complete", [claimed])

    assert queue.call("lost_ids", [published], [claimed.claim_id], [], "success") == []
    assert queue.call("lost_ids", [published], [claimed.claim_id], [], "rejected") == [published]
    assert queue.call("lost_ids", [published], [claimed.claim_id + 1], [], "success") == [published]


def test_a_message_that_was_archived_without_a_claim_is_lost(queue: Queue) -> None:
    cancelled = queue.publish()
    queue.call("cancel", [cancelled])

    assert queue.call("lost_ids", [cancelled], [None], [], "cancelled") == [cancelled]
