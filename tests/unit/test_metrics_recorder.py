"""The meters: what is counted, into which bucket a time falls, and that no thread's share gets lost."""

from __future__ import annotations

import random
import threading
from bisect import bisect_left
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pgrouse.worker.claim_planner import Source
from pgrouse.client.message import Message
from pgrouse.worker.metrics_recorder import BOUNDS_S, BUCKETS, Histogram, Meters, Result
from pgrouse.handlers.outcome import Ended, Kind

Claimed = Callable[..., Message]


def filled(histogram: Histogram) -> dict[int, int]:
    """The buckets that count something, the first being 1."""
    histogram.sort_in()
    return {nth: count for nth, count in enumerate(histogram.counts, 1) if count}


class Busy(list[float]):
    """What another thread adds to as soon as it was looked at."""

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        self.append(0.5)
        return found


class TestHistogram:
    def test_bounds_grow_by_the_root_of_two(self) -> None:
        assert (len(BOUNDS_S), BUCKETS) == (47, 48)
        assert BOUNDS_S[1] == pytest.approx(0.0002)
        assert BOUNDS_S[46] == pytest.approx(1186.3, rel=1e-4)

    def test_a_time_on_a_bound_belongs_to_the_bucket_below(self) -> None:
        histogram = Histogram()
        histogram.add_all([BOUNDS_S[0], BOUNDS_S[0] * 1.0001, BOUNDS_S[46], BOUNDS_S[46] * 2, 0.0, -1.0])

        assert filled(histogram) == {1: 3, 2: 1, 47: 1, 48: 1}

    def test_many_times_at_once_fall_where_each_alone_does(self) -> None:
        rng = random.Random(1)
        times = [rng.lognormvariate(-4, 3) for _ in range(2000)]
        histogram = Histogram()
        histogram.add_all(times)
        histogram.sort_in()

        assert histogram.counts == [sum(bisect_left(BOUNDS_S, each) == nth for each in times) for nth in range(BUCKETS)]
        assert histogram.sum_s == pytest.approx(sum(times))

    def test_what_is_added_while_it_is_sorted_in_stays_for_the_next_time(self) -> None:
        histogram = Histogram()
        histogram._fresh = Busy([0.01])

        assert sum(filled(histogram).values()) == 1
        assert sum(filled(histogram).values()) == 2

    def test_what_threads_add_is_neither_lost_nor_counted_twice(self) -> None:
        meters, done = Meters(["job"]), threading.Event()

        def add(_: int) -> None:
            for _ in range(5000):
                meters.of("job").runs.add(0.01)

        def sort() -> None:
            while not done.is_set():
                meters.sort_in()

        sorters = [threading.Thread(target=sort) for _ in range(2)]
        for each in sorters:
            each.start()
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(add, range(4)))
        done.set()
        for each in sorters:
            each.join()

        assert sum(filled(meters.of("job").runs).values()) == 20_000


class TestClaims:
    def test_the_waits_of_each_topic_stand_in_its_own_histogram(self, claimed: Claimed) -> None:
        meters = Meters()
        meters.claimed(
            [claimed("a", waited_s=1.0), claimed("a", waited_s=1.0), claimed("b", waited_s=0.0)], Source.BUSY, 0
        )

        assert [sum(filled(meters.of(topic).waits).values()) for topic in "ab"] == [2, 1]
        assert (meters.claims[Source.BUSY], meters.found[Source.BUSY]) == (1, 3)

    def test_only_what_came_during_the_sleep_was_woken_for(self, claimed: Claimed) -> None:
        meters = Meters()
        meters.claimed([claimed(waited_s=0.002), claimed(waited_s=60.0)], Source.NOTIFY, slept_s=5.0)

        assert sum(filled(meters.of("job").wakes).values()) == 1
        assert meters.of("job").missed == 0

    def test_what_came_during_the_sleep_and_was_found_late_by_a_poll_was_missed(self, claimed: Claimed) -> None:
        just_now, missed, from_before = claimed(waited_s=0.2), claimed(waited_s=3.0), claimed(waited_s=60.0)
        meters = Meters()
        meters.claimed([just_now, missed, from_before], Source.POLL, slept_s=5.0)

        assert meters.of("job").missed == 1
        assert filled(meters.of("job").wakes) == {}

    def test_a_claim_that_brings_nothing_counts_as_a_claim(self) -> None:
        meters = Meters()
        meters.claimed([], Source.TIMER, 1.0)

        assert (meters.claims[Source.TIMER], meters.found[Source.TIMER], meters.topics) == (1, 0, {})


class TestEnds:
    @pytest.mark.parametrize(
        ("kind", "attempt", "result"),
        [
            (Kind.COMPLETE, 1, Result.SUCCESS),
            (Kind.REJECT, 1, Result.REJECTED),
            (Kind.FAIL, 1, Result.FAILED),
            (Kind.RETRY, 1, Result.RETRIED),
            (Kind.RETRY, 3, Result.FAILED),
            (Kind.EXPIRE, 1, Result.LOCK_EXPIRED),
            (Kind.DEFER, 1, Result.DEFERRED),
            (Kind.RELEASE, 1, Result.RELEASED),
        ],
    )
    def test_each_end_has_its_result(self, claimed: Claimed, kind: Kind, attempt: int, result: Result) -> None:
        meters = Meters()

        kinds = meters.settled([Ended(claimed(attempt=attempt, max_attempts=3), kind)], [])

        assert {each: count for each, count in meters.of("job").results.items() if count} == {result: 1}
        assert kinds == {kind: 1}

    def test_without_a_limit_no_attempt_is_the_last(self, claimed: Claimed) -> None:
        meters = Meters()
        meters.settled([Ended(claimed(attempt=99, max_attempts=None), Kind.RETRY)], [])

        assert meters.of("job").results[Result.RETRIED] == 1

    def test_what_was_lost_ended_in_no_other_way(self, claimed: Claimed) -> None:
        fine, lost = claimed(), claimed()
        meters = Meters()

        kinds = meters.settled([Ended(fine, Kind.COMPLETE), Ended(lost, Kind.COMPLETE)], [lost.id])

        results = meters.of("job").results
        assert (results[Result.SUCCESS], results[Result.LOST], kinds) == (1, 1, {Kind.COMPLETE: 2})

    def test_topics_are_counted_apart(self, claimed: Claimed) -> None:
        meters = Meters()
        meters.settled([Ended(claimed(topic), Kind.COMPLETE) for topic in ("a", "b", "a")], [])

        assert [meters.of(topic).results[Result.SUCCESS] for topic in "ab"] == [2, 1]
