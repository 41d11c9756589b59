"""messages.backoff_delay: how long until the next attempt."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.sql.queue import Queue


def backoff(queue: Queue, attempt: int, random: float = 0.5, **policy: Any) -> float:
    wait: timedelta = queue.call("backoff_delay", policy, attempt, random)
    return wait.total_seconds()


@pytest.mark.parametrize(
    ("policy", "waits"),
    [
        ({"kind": "none"}, [0, 0, 0, 0]),
        ({"kind": "none", "base": "5 s"}, [0, 0, 0, 0]),
        ({"kind": "constant", "base": "5 s"}, [5, 5, 5, 5]),
        ({"kind": "linear", "base": "5 s"}, [5, 10, 15, 20]),
        ({"kind": "linear", "base": "5 s", "step": "1 s"}, [5, 6, 7, 8]),
        ({"kind": "exponential", "base": "5 s"}, [5, 10, 20, 40]),
        ({"kind": "exponential", "base": "5 s", "factor": 3}, [5, 15, 45, 135]),
        ({"kind": "exponential", "base": "5 s", "factor": 1}, [5, 5, 5, 5]),
        ({"kind": "exponential", "base": "100 ms"}, [0.1, 0.2, 0.4, 0.8]),
        ({"kind": "exponential"}, [1, 2, 4, 8]),
        ({"kind": "linear"}, [1, 2, 3, 4]),
        ({"kind": "constant"}, [1, 1, 1, 1]),
        ({"kind": "constant", "base": 2}, [2, 2, 2, 2]),
    ],
)
def test_each_kind_grows_according_to_its_rule_from_the_first_attempt(
    queue: Queue, policy: dict[str, Any], waits: list[float]
) -> None:
    assert [backoff(queue, attempt, **policy) for attempt in (1, 2, 3, 4)] == pytest.approx(waits)


@pytest.mark.parametrize("kind", ["constant", "linear", "exponential"])
def test_the_cap_bounds_every_kind(queue: Queue, kind: str) -> None:
    assert backoff(queue, 50, kind=kind, base="1 minute", cap="30 s") == 30


def test_without_a_cap_the_cap_is_a_day(queue: Queue) -> None:
    assert backoff(queue, 40, kind="exponential") == 86400


@pytest.mark.parametrize("attempt", [61, 1000, 2_147_483_647])
def test_a_large_number_of_attempts_does_not_overflow(queue: Queue, attempt: int) -> None:
    assert backoff(queue, attempt, kind="exponential", base="10 years", factor=1000, cap="10 years") <= 10 * 366 * 86400
    assert backoff(queue, attempt, kind="linear", base="10 years", step="10 years", cap="10 years") <= 10 * 366 * 86400


@pytest.mark.parametrize("attempt", [0, -5])
def test_an_attempt_below_1_counts_as_the_first(queue: Queue, attempt: int) -> None:
    assert backoff(queue, attempt, kind="linear", base="5 s") == 5


@pytest.mark.parametrize(("random", "wait"), [(0, 0), (0.25, 2.5), (0.999, 9.99)])
def test_full_jitter_draws_from_zero_to_the_delay(queue: Queue, random: float, wait: float) -> None:
    assert backoff(queue, 1, random, kind="constant", base="10 s", jitter="full") == pytest.approx(wait)


@pytest.mark.parametrize(("random", "wait"), [(0, 8), (0.5, 10), (0.999, 11.996)])
def test_a_jitter_of_a_fifth_draws_from_a_fifth_below_to_a_fifth_above(
    queue: Queue, random: float, wait: float
) -> None:
    assert backoff(queue, 1, random, kind="constant", base="10 s", jitter=0.2) == pytest.approx(wait)


def test_jitter_is_drawn_after_the_cap(queue: Queue) -> None:
    assert backoff(queue, 9, 0.5, kind="exponential", base="10 s", cap="20 s", jitter="full") == 10
