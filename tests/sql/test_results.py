"""messages.results: how messages ended, independent of the settle that was requested."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue, Row

RESULTS = "SELECT * FROM messages.results(%s, %s)"


def results(queue: Queue, claimed: list[Row]) -> dict[int, str]:
    pairs = [[row.id for row in claimed], [row.claim_id for row in claimed]]
    return {row.id: row.result for row in queue.rows(RESULTS, pairs)}


@pytest.mark.parametrize(("attempts", "expected"), [(1, "failed"), (2, None)])
def test_a_retry_ended_only_messages_without_attempts_left(queue: Queue, attempts: int, expected: str | None) -> None:
    queue.policy(max_attempts=attempts)
    published = queue.publish()
    claimed = queue.claim()

    queue.settle("retry", claimed, ["why"])

    assert results(queue, claimed).get(published) == expected


def test_ended_messages_have_their_result_and_held_ones_are_missing(queue: Queue) -> None:
    success, rejected, cancelled, held = queue.publish_many(4)
    claimed = queue.claim()
    queue.settle("complete", claimed[:1])
    queue.settle("reject", claimed[1:2], ["why"])
    queue.call("cancel", [cancelled])

    assert results(queue, claimed) == {success: "success", rejected: "rejected", cancelled: "cancelled"}
    assert queue.message(held).claim_id == claimed[3].claim_id


def test_a_released_message_that_was_superseded_was_cancelled(queue: Queue) -> None:
    older = queue.publish(key="k")
    claimed = queue.claim()
    queue.publish(key="k")

    queue.settle("release", claimed)

    assert results(queue, claimed) == {older: "cancelled"}


def test_a_message_that_ended_under_a_later_claim_is_missing(queue: Queue) -> None:
    queue.publish()
    stale = queue.claim()
    queue.settle("release", stale)
    queue.settle("complete", queue.claim())

    assert results(queue, stale) == {}


def test_no_ids_return_nothing(queue: Queue) -> None:
    assert results(queue, []) == {}
