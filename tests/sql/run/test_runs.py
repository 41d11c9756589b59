"""What a worker asks about its claimed messages: runs, ids, cancellations, results."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.queue import Queue, Row

# messages.count_runs, and what a claim counts: attempts are claims, runs are messages whose handler was started.


def counts(queue: Queue, *ids: int) -> list[tuple[int, int]]:
    """Return attempts and runs of each message."""
    return [(row.attempts, row.runs) for row in map(queue.message, ids)]


def start(queue: Queue, claimed: list[Any]) -> None:
    queue.settle("count_runs", claimed)


def test_a_claim_counts_a_run_only_for_messages_that_begin_at_once(queue: Queue) -> None:
    published = queue.publish_many(3)

    queue.claim(start=1)

    assert counts(queue, *published) == [(1, 1), (1, 0), (1, 0)]


def test_the_bound_applies_to_all_topics_and_channels_together(queue: Queue) -> None:
    ids = [queue.publish("a"), queue.publish("a", channel="c"), queue.publish("b")]

    claimed = queue.claim("a", "b", start=2)

    begun = [each.id for each in claimed[:2]]
    assert {each: queue.message(each).runs for each in ids} == {each: int(each in begun) for each in ids}


def test_each_message_is_counted_when_it_begins_and_only_once(queue: Queue) -> None:
    published = queue.publish_many(3)
    claimed = queue.claim(start=1)

    start(queue, claimed[:2])
    start(queue, claimed[:2])

    assert counts(queue, *published) == [(1, 1), (1, 1), (1, 0)]


def test_a_lost_lock_counts_nothing(queue: Queue) -> None:
    published = queue.publish()
    stale = queue.claim(start=0)
    queue.settle("release", stale)
    queue.claim(start=0)

    start(queue, stale)

    assert counts(queue, published) == [(1, 0)]


@pytest.mark.parametrize("begin_at_once", [0, 1])
def test_a_release_takes_back_what_the_claim_counted_and_no_more(queue: Queue, begin_at_once: int) -> None:
    queue.policy("t", max_attempts=5, backoff={"kind": "none"})
    published = queue.publish()
    queue.settle("retry", queue.claim(), ["boom"])

    queue.settle("release", queue.claim(start=begin_at_once))

    assert counts(queue, published) == [(1, 1)]


def test_a_release_of_a_message_that_had_begun_keeps_the_run(queue: Queue) -> None:
    began, waited = queue.publish_many(2)

    queue.settle("release", queue.claim(), [True, False])

    assert counts(queue, began, waited) == [(0, 1), (0, 0)]


def test_release_orphaned_takes_back_what_the_lost_claim_counted(queue: Queue) -> None:
    published = queue.publish_many(2)
    queue.claim(worker="w/0", start=1)

    queue.call("release_orphaned", "w/0", [])

    assert counts(queue, *published) == [(0, 0), (0, 0)]


def test_an_unstarted_message_of_a_crashed_worker_is_charged_an_attempt_and_no_run(queue: Queue) -> None:
    queue.policy("t", max_attempts=3, backoff={"kind": "none"})
    ran, waited = queue.publish_many(2)
    queue.claim(start=1)
    queue.later("1 hour")

    queue.call("expire_locks")

    assert counts(queue, ran, waited) == [(1, 1), (1, 0)]
    assert [each.get("run") for each in queue.message(ran).history] == [1]
    assert [each.get("run") for each in queue.message(waited).history] == [None]


def test_the_history_and_the_archive_have_attempts_and_runs(queue: Queue) -> None:
    queue.policy("t", max_attempts=5, backoff={"kind": "none"})
    published = queue.publish()
    queue.settle("retry", queue.claim(), ["boom"])
    queue.settle("defer", queue.claim())
    queue.settle("retry", queue.claim(), ["boom"])
    history = queue.message(published).history
    queue.settle("complete", queue.claim())

    seen = [(each["attempt"], each["run"], each["outcome"]) for each in history]
    assert seen == [(1, 1, "failed"), (2, 2, "deferred"), (2, 3, "failed")]
    assert (queue.archived(published).attempts, queue.archived(published).runs) == (3, 4)


# messages.claimed_ids: which messages are still locked by a claim.

HELD_IDS = "SELECT * FROM messages.claimed_ids(%s)"


def test_it_returns_all_messages_that_these_claims_hold_and_of_no_other(queue: Queue) -> None:
    queue.publish_many(4)
    first, second, other = (queue.claim(limit=n) for n in (1, 2, 1))
    claims = [first[0].claim_id, second[0].claim_id]

    found = queue.rows(HELD_IDS, [claims])
    queue.settle("complete", first)

    assert [(row.id, row.claim_id) for row in found] == [(row.id, row.claim_id) for row in [*first, *second]]
    assert other[0].id not in [row.id for row in found]
    assert [row.id for row in queue.rows(HELD_IDS, [claims])] == [row.id for row in second]


# messages.cancelled_ids: which locks were lost because of a cancel.


def test_only_messages_that_were_cancelled_under_the_same_claim_are_returned(queue: Queue) -> None:
    cancelled, completed, running = queue.publish_many(3)
    claimed = queue.claim()
    queue.call("cancel", [cancelled])
    queue.settle("complete", [claimed[1]])

    assert queue.settle("cancelled_ids", claimed) == [cancelled]
    assert queue.message(running) is not None
    assert queue.archived(completed).result == "success"


def test_of_an_earlier_claim_and_of_none_no_message_is_returned(queue: Queue) -> None:
    published = queue.publish()
    stale = queue.claim()
    queue.settle("release", stale)
    waiting = queue.publish("waiting")
    queue.claim("t")
    queue.call("cancel", [published, waiting])

    assert queue.settle("cancelled_ids", stale) == []
    assert queue.call("cancelled_ids", [waiting], [None]) == []


# messages.read_claimed: the messages that a worker holds, read again.

HELD = "SELECT * FROM messages.read_claimed(%s, %s) ORDER BY id"
OF_NOW = ("waited_s", "elapsed_s")


def held(queue: Queue, claimed: list[Row]) -> list[Row]:
    return queue.rows(HELD, [[row.id for row in claimed], [row.claim_id for row in claimed]])


def lasting(rows: list[Row]) -> list[dict[str, object]]:
    return [{name: value for name, value in row._asdict().items() if name not in OF_NOW} for row in rows]


def test_it_returns_the_same_rows_as_the_claim(queue: Queue) -> None:
    queue.policy(max_attempts=3, timeout="5 s", lock_duration="1 minute")
    queue.publish(payload={"a": 1}, headers={"h": 1}, channel="c", priority=2)
    queue.publish(body=b"bytes", key="k")

    claimed = sorted(queue.claim(), key=lambda row: row.id)

    assert lasting(held(queue, claimed)) == lasting(claimed)


def test_lost_and_settled_messages_are_missing(queue: Queue) -> None:
    queue.policy(max_attempts=5)
    queue.publish_many(3)
    first, second, third = queue.claim()
    queue.settle("complete", [first])
    queue.settle("release", [second])
    queue.claim(worker="another")

    assert [row.id for row in held(queue, [first, second, third])] == [third.id]


def test_an_unknown_claim_returns_nothing(queue: Queue) -> None:
    published = queue.publish()

    assert queue.rows(HELD, [[published], [None]]) == []


# messages.results: how messages ended, independent of the settle that was requested.

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
