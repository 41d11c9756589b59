"""How long a loop waits before its next step."""

from __future__ import annotations

from pgrouse.backoff import jittered


def test_daemons_that_started_together_spread_their_polls() -> None:
    waits = [jittered(10) for _ in range(200)]

    assert all(8 <= each <= 12 for each in waits)
    assert max(waits) - min(waits) > 1
