"""messages.claimed_ids: which messages are still locked by a claim."""

from __future__ import annotations

from tests.sql.queue import Queue

HELD_IDS = "SELECT * FROM messages.claimed_ids(%s)"


def test_it_returns_all_messages_of_these_claims_and_of_no_other(queue: Queue) -> None:
    queue.publish_many(4)
    first, second, other = (queue.claim(limit=n) for n in (1, 2, 1))

    found = queue.rows(HELD_IDS, [[first[0].claim_id, second[0].claim_id]])

    assert [(row.id, row.claim_id) for row in found] == [(row.id, row.claim_id) for row in [*first, *second]]
    assert other[0].id not in [row.id for row in found]


def test_settled_messages_are_missing(queue: Queue) -> None:
    queue.publish_many(2)
    first, second = queue.claim()
    queue.settle("complete", [first])

    assert [row.id for row in queue.rows(HELD_IDS, [[first.claim_id]])] == [second.id]


def test_no_claims_return_nothing(queue: Queue) -> None:
    queue.publish()
    queue.claim()

    assert queue.rows(HELD_IDS, [[]]) == []
