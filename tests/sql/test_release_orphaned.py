"""messages.release_orphaned: releases messages that a worker holds without knowing it."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_unknown_messages_are_released_and_known_ones_stay_locked(queue: Queue) -> None:
    known = queue.claim_one(worker="w", topic=_published(queue))
    forgotten = queue.claim_one(worker="w", topic=_published(queue))

    assert queue.call("release_orphaned", "w", [known.id]) == [forgotten.id]
    assert queue.message(forgotten.id).attempts == 0
    assert queue.message(known.id).claim_id == known.claim_id


def test_messages_of_other_workers_are_not_changed(queue: Queue) -> None:
    claimed = queue.claim_one(worker="another", topic=_published(queue))

    assert queue.call("release_orphaned", "w", []) == []
    assert queue.message(claimed.id).locked_by == "another"


def test_a_worker_without_messages_releases_nothing(queue: Queue) -> None:
    assert queue.call("release_orphaned", "w", []) == []


def test_nothing_is_released_if_it_is_not_said_what_the_worker_knows(queue: Queue) -> None:
    claimed = queue.claim_one(worker="w", topic=_published(queue))

    assert queue.call("release_orphaned", "w", None) == []
    assert queue.message(claimed.id).claim_id == claimed.claim_id


def _published(queue: Queue) -> str:
    queue.publish()
    return "t"
