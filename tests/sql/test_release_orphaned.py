"""messages.release_orphaned: what a worker holds without knowing it goes back."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_what_the_worker_does_not_know_is_released_and_what_it_knows_stays(queue: Queue) -> None:
    known = queue.claim_one(worker="w", topic=_published(queue))
    forgotten = queue.claim_one(worker="w", topic=_published(queue))

    assert queue.call("release_orphaned", "w", [known.id]) == [forgotten.id]
    assert queue.message(forgotten.id).attempts == 0
    assert queue.message(known.id).claim_id == known.claim_id


def test_what_others_hold_is_not_touched(queue: Queue) -> None:
    claimed = queue.claim_one(worker="another", topic=_published(queue))

    assert queue.call("release_orphaned", "w", []) == []
    assert queue.message(claimed.id).locked_by == "another"


def test_who_holds_nothing_releases_nothing(queue: Queue) -> None:
    assert queue.call("release_orphaned", "w", []) == []


def _published(queue: Queue) -> str:
    queue.publish()
    return "t"
