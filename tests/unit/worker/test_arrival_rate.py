"""Whether messages arrive steadily."""

from __future__ import annotations

import pytest

from pgrouse.worker.loop.arrival_rate import STEADY_FROM, STEADY_TO, WINDOW_S, ArrivalRate

LOOK_S = 0.002


def arrive(rate: ArrivalRate, per_second: float, seconds: float, since: float = 0.0) -> bool:
    """Let messages arrive evenly, and look for them each two milliseconds.

    Return whether they do so steadily at the end.
    """
    is_steady = False
    taken = 0
    for look in range(1, round(seconds / LOOK_S) + 1):
        arrived = int(per_second * look * LOOK_S)
        is_steady = rate.add(arrived - taken, since + look * LOOK_S)
        taken = arrived
    return is_steady


def test_messages_that_arrive_faster_than_the_bound_arrive_steadily() -> None:
    assert arrive(ArrivalRate(), 1.5 * STEADY_FROM, 10 * WINDOW_S)
    assert not arrive(ArrivalRate(), STEADY_TO, 10 * WINDOW_S)


def test_between_the_bounds_it_stays_as_it_is() -> None:
    rate = ArrivalRate()
    between = (STEADY_FROM + STEADY_TO) / 2

    assert not arrive(rate, between, 10 * WINDOW_S)
    assert arrive(rate, 2 * STEADY_FROM, 10 * WINDOW_S, since=1)
    assert arrive(rate, between, 10 * WINDOW_S, since=1 + 10 * WINDOW_S)


@pytest.mark.parametrize("backlog", [100, 1_000_000])
def test_a_backlog_is_forgotten_soon(backlog: int) -> None:
    rate = ArrivalRate()

    assert rate.add(backlog, 1.0)
    assert not rate.add(0, 1.0 + 2 * WINDOW_S)


def test_one_message_now_and_then_is_not_steady() -> None:
    rate = ArrivalRate()

    assert not any(rate.add(1, float(second)) for second in range(10))
