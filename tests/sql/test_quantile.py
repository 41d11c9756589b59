"""messages.quantile: the time that a given share of the measures did not exceed."""

from __future__ import annotations

import random
from bisect import bisect_left

import pytest
from psycopg import errors

from pgrouse.metrics.histogram import BOUNDS_S, BUCKETS
from tests.sql.queue import Queue


def quantile(queue: Queue, counts: list[int | None], q: float) -> float | None:
    found: float | None = queue.value("SELECT messages.quantile(%s::bigint[], %s)", [counts, q])
    return found


def test_it_interpolates_evenly_within_its_bucket(queue: Queue) -> None:
    low, high = BOUNDS_S[1], BOUNDS_S[2]

    assert quantile(queue, [0, 0, 10], 0.5) == pytest.approx((low + high) / 2)
    assert quantile(queue, [0, 0, 10], 1) == pytest.approx(high)
    assert quantile(queue, [10], 0.5) == pytest.approx(BOUNDS_S[0] / 2)


@pytest.mark.parametrize("q", [0.5, 0.95, 0.99])
def test_for_spread_out_times_its_error_is_small(queue: Queue, q: float) -> None:
    rng = random.Random(7)
    times = sorted(rng.lognormvariate(-3, 1.5) for _ in range(5000))
    counts: list[int | None] = [0] * BUCKETS
    for each in times:
        nth = bisect_left(BOUNDS_S, each)
        counts[nth] = (counts[nth] or 0) + 1

    found = quantile(queue, counts, q)

    assert found == pytest.approx(times[int(q * len(times))], rel=0.2)


def test_its_error_is_at_most_the_width_of_a_bucket(queue: Queue) -> None:
    """All measures are at the lower bound of their bucket."""
    found = quantile(queue, [0] * 20 + [10], 0.99)

    assert found is not None
    assert 1 <= found / BOUNDS_S[19] <= 2**0.5


def test_in_the_open_bucket_the_lower_bound_is_returned(queue: Queue) -> None:
    assert quantile(queue, [0] * 47 + [3], 0.5) == pytest.approx(BOUNDS_S[-1])


def test_an_empty_histogram_has_no_quantile(queue: Queue) -> None:
    assert quantile(queue, [], 0.5) is None
    assert quantile(queue, [0, 0], 0.5) is None
    assert quantile(queue, [None, 0], 0.5) is None


def test_missing_counts_are_zero(queue: Queue) -> None:
    assert quantile(queue, [None, None, 10], 1) == quantile(queue, [0, 0, 10], 1)


@pytest.mark.parametrize("q", [-0.1, 1.1, 95.0])
def test_a_percentage_is_refused(queue: Queue, q: float) -> None:
    with pytest.raises(errors.InvalidParameterValue, match=r"0\.95 is the 95th percentile"):
        quantile(queue, [1], q)
