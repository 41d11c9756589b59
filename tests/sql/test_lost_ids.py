"""messages.lost_ids: which of the messages that a caller tried to settle were not his any more."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_what_was_settled_just_now_is_not_lost(queue: Queue) -> None:
    assert queue.call("lost_ids", [1, 2], [7, 7], [2, 1], "success") == []


def test_what_is_nowhere_is_lost(queue: Queue) -> None:
    assert queue.call("lost_ids", [1, 2], [7, 7], [2], "success") == [1]


def test_what_an_earlier_try_archived_under_the_same_claim_with_the_same_result_is_not_lost(queue: Queue) -> None:
    published = queue.publish()
    (claimed,) = queue.claim()
    queue.settle("complete", [claimed])

    assert queue.call("lost_ids", [published], [claimed.claim_id], [], "success") == []
    assert queue.call("lost_ids", [published], [claimed.claim_id], [], "rejected") == [published]
    assert queue.call("lost_ids", [published], [claimed.claim_id + 1], [], "success") == [published]


def test_what_the_archive_holds_without_a_claim_is_lost(queue: Queue) -> None:
    cancelled = queue.publish()
    queue.call("cancel", [cancelled])

    assert queue.call("lost_ids", [cancelled], [None], [], "cancelled") == [cancelled]
