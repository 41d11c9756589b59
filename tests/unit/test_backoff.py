"""How long a loop waits before its next step, and before another try."""

from __future__ import annotations

import pytest

from pgrouse.backoff import BACKOFF_MAX_S, BACKOFF_MIN_S, backoff_s, jittered


def test_daemons_that_started_together_spread_their_polls() -> None:
    waits = [jittered(10) for _ in range(200)]

    assert all(8 <= each <= 12 for each in waits)
    assert max(waits) - min(waits) > 1


@pytest.mark.parametrize(("failures", "longest"), [(1, 0.2), (3, 0.8), (8, BACKOFF_MAX_S), (10_000, BACKOFF_MAX_S)])
def test_the_pauses_double_up_to_a_bound_and_differ(failures: int, longest: float) -> None:
    pauses = [backoff_s(failures) for _ in range(1000)]

    assert min(pauses) >= BACKOFF_MIN_S
    assert 0.9 * longest < max(pauses) <= longest
