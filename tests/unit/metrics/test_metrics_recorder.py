"""The metrics: what is counted, in which bucket a time is counted, and that no thread's values are lost."""

from __future__ import annotations

import random
import threading
from bisect import bisect_left
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind, Settlement
from pgrouse.metrics.histogram import BOUNDS_S, BUCKETS, Histogram
from pgrouse.worker.reporting.metrics_recorder import AttemptResult, MetricsRecorder
from pgrouse.worker.reporting.wake_reason import WakeReason

Claimed = Callable[..., Message]


def filled(histogram: Histogram) -> dict[int, int]:
    """The buckets that count something, the first being 1."""
    histogram.flush()
    return {nth: count for nth, count in enumerate(histogram.counts, 1) if count}


class Busy(list[float]):
    """A list to which another thread adds as soon as it was read."""

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

    def test_many_times_are_sorted_like_single_ones(self) -> None:
        rng = random.Random(1)
        times = [rng.lognormvariate(-4, 3) for _ in range(2000)]
        histogram = Histogram()
        histogram.add_all(times)
        histogram.flush()

        assert histogram.counts == [sum(bisect_left(BOUNDS_S, each) == nth for each in times) for nth in range(BUCKETS)]
        assert histogram.sum_s == pytest.approx(sum(times))

    def test_times_added_during_the_sorting_are_counted_next_time(self) -> None:
        histogram = Histogram()
        histogram._unsorted = Busy([0.01])

        assert sum(filled(histogram).values()) == 1
        assert sum(filled(histogram).values()) == 2

    def test_times_added_by_threads_are_counted_once(self) -> None:
        metrics, done = MetricsRecorder(["job"]), threading.Event()

        def add(_: int) -> None:
            for _ in range(5000):
                metrics.for_topic("job").runs.add(0.01)

        def sort() -> None:
            while not done.is_set():
                metrics.flush()

        sorters = [threading.Thread(target=sort) for _ in range(2)]
        for each in sorters:
            each.start()
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(add, range(4)))
        done.set()
        for each in sorters:
            each.join()

        assert sum(filled(metrics.for_topic("job").runs).values()) == 20_000


class TestClaims:
    def test_the_waits_of_each_topic_are_in_its_own_histogram(self, claimed: Claimed) -> None:
        metrics = MetricsRecorder()
        metrics.record_claim(
            [claimed("a", waited_s=1.0), claimed("a", waited_s=1.0), claimed("b", waited_s=0.0)], WakeReason.BUSY, 0
        )

        assert [sum(filled(metrics.for_topic(topic).waits).values()) for topic in "ab"] == [2, 1]
        assert (metrics.claims[WakeReason.BUSY], metrics.claimed_messages[WakeReason.BUSY]) == (1, 3)

    def test_only_messages_published_during_the_sleep_count_as_woken(self, claimed: Claimed) -> None:
        metrics = MetricsRecorder()
        metrics.record_claim([claimed(waited_s=0.002), claimed(waited_s=60.0)], WakeReason.NOTIFY, slept_s=5.0)

        assert sum(filled(metrics.for_topic("job").wakes).values()) == 1
        assert metrics.for_topic("job").missed == 0

    def test_messages_published_during_the_sleep_and_found_by_a_late_poll_count_as_missed(
        self, claimed: Claimed
    ) -> None:
        just_now, missed, from_before = claimed(waited_s=0.2), claimed(waited_s=3.0), claimed(waited_s=60.0)
        metrics = MetricsRecorder()
        metrics.record_claim([just_now, missed, from_before], WakeReason.POLL, slept_s=5.0)

        assert metrics.for_topic("job").missed == 1
        assert filled(metrics.for_topic("job").wakes) == {}


class TestEnds:
    @pytest.mark.parametrize(
        ("kind", "attempt", "result"),
        [
            (SettleKind.COMPLETE, 1, AttemptResult.SUCCESS),
            (SettleKind.REJECT, 1, AttemptResult.REJECTED),
            (SettleKind.FAIL, 1, AttemptResult.FAILED),
            (SettleKind.RETRY, 1, AttemptResult.RETRIED),
            (SettleKind.RETRY, 3, AttemptResult.FAILED),
            (SettleKind.EXPIRE, 1, AttemptResult.LOCK_EXPIRED),
            (SettleKind.DEFER, 1, AttemptResult.DEFERRED),
            (SettleKind.RELEASE, 1, AttemptResult.RELEASED),
        ],
    )
    def test_each_end_has_its_result(
        self, claimed: Claimed, kind: SettleKind, attempt: int, result: AttemptResult
    ) -> None:
        metrics = MetricsRecorder()

        kinds = metrics.record_settled([Settlement(claimed(attempt=attempt, max_attempts=3), kind)], [])

        assert {each: count for each, count in metrics.for_topic("job").results.items() if count} == {result: 1}
        assert kinds == {kind: 1}

    def test_no_attempt_is_the_last_without_a_limit(self, claimed: Claimed) -> None:
        metrics = MetricsRecorder()
        metrics.record_settled([Settlement(claimed(attempt=99, max_attempts=None), SettleKind.RETRY)], [])

        assert metrics.for_topic("job").results[AttemptResult.RETRIED] == 1

    def test_a_lost_message_has_no_other_result(self, claimed: Claimed) -> None:
        fine, lost = claimed(), claimed()
        metrics = MetricsRecorder()

        kinds = metrics.record_settled(
            [Settlement(fine, SettleKind.COMPLETE), Settlement(lost, SettleKind.COMPLETE)], [lost.id]
        )

        results = metrics.for_topic("job").results
        assert (results[AttemptResult.SUCCESS], results[AttemptResult.LOST], kinds) == (1, 1, {SettleKind.COMPLETE: 2})
