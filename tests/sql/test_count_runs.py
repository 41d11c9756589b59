"""messages.count_runs, and what a claim counts: attempts are claims, runs are messages whose handler was started."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.queue import Queue


def counts(queue: Queue, *ids: int) -> list[tuple[int, int]]:
    """Return attempts and runs of each message."""
    return [(row.attempts, row.runs) for row in map(queue.message, ids)]


def start(queue: Queue, claimed: list[Any]) -> None:
    queue.settle("count_runs", claimed)


def test_a_claim_counts_a_run_only_for_messages_that_begin_at_once(queue: Queue) -> None:
    published = queue.publish_many(3)

    queue.claim(start=1)

    assert counts(queue, *published) == [(1, 1), (1, 0), (1, 0)]


def test_without_a_bound_all_messages_begin_at_once(queue: Queue) -> None:
    published = queue.publish_many(2)

    queue.claim()

    assert counts(queue, *published) == [(1, 1), (1, 1)]


def test_the_bound_applies_to_all_topics_and_channels_together(queue: Queue) -> None:
    ids = [queue.publish("a"), queue.publish("a", channel="c"), queue.publish("b")]

    claimed = queue.claim("a", "b", start=2)

    begun = [each.id for each in claimed[:2]]
    assert {each: queue.message(each).runs for each in ids} == {each: int(each in begun) for each in ids}


def test_a_message_that_waited_is_counted_when_it_begins_and_only_once(queue: Queue) -> None:
    first, second = queue.publish_many(2)
    claimed = queue.claim(start=0)

    start(queue, [claimed[0]])
    start(queue, claimed[:1])

    assert counts(queue, first, second) == [(1, 1), (1, 0)]


def test_a_message_that_began_at_once_is_not_counted_again(queue: Queue) -> None:
    published = queue.publish()

    start(queue, queue.claim())

    assert counts(queue, published) == [(1, 1)]


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


def test_the_history_has_attempts_and_runs(queue: Queue) -> None:
    queue.policy("t", max_attempts=5, backoff={"kind": "none"})
    published = queue.publish()
    queue.settle("retry", queue.claim(), ["boom"])
    queue.settle("defer", queue.claim())
    queue.settle("retry", queue.claim(), ["boom"])

    history = queue.message(published).history

    assert [(each["attempt"], each["run"], each["outcome"]) for each in history] == [
        (1, 1, "failed"),
        (2, 2, "deferred"),
        (2, 3, "failed"),
    ]


def test_the_archive_has_both(queue: Queue) -> None:
    queue.policy("t", max_attempts=5, backoff={"kind": "none"})
    published = queue.publish()
    queue.settle("defer", queue.claim())
    queue.settle("complete", queue.claim())

    assert (queue.archived(published).attempts, queue.archived(published).runs) == (1, 2)
