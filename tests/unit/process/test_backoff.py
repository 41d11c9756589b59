"""How long a loop waits before its next step, and before another try."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from pgrouse.logging import events
from pgrouse.process.backoff import BACKOFF_MAX_S, BACKOFF_MIN_S, FailureLog, backoff_s, jittered


def test_daemons_that_started_together_spread_their_polls() -> None:
    waits = [jittered(10) for _ in range(200)]

    assert all(8 <= each <= 12 for each in waits)
    assert max(waits) - min(waits) > 1


@pytest.mark.parametrize(("failures", "longest"), [(1, 0.2), (3, 0.8), (8, BACKOFF_MAX_S), (10_000, BACKOFF_MAX_S)])
def test_the_pauses_double_up_to_a_bound_and_differ(failures: int, longest: float) -> None:
    pauses = [backoff_s(failures) for _ in range(1000)]

    assert min(pauses) >= BACKOFF_MIN_S
    assert 0.9 * longest < max(pauses) <= longest


def test_failures_in_a_row_are_one_line_at_their_start_and_one_at_their_end() -> None:
    times = iter([0.0, 1.0, 59.0, 59.5])
    failures = FailureLog("claim-0", lambda: next(times))

    with capture_logs() as logs:
        for _ in range(3):
            failures.failed(ConnectionError("refused"))
        failures.recovered()
        failures.recovered()

    begun = {"event": events.LOOP_FAILED, "loop": "claim-0", "failures": 1, "reason": "refused", "log_level": "warning"}
    ended = {"event": events.LOOP_RECOVERED, "loop": "claim-0", "failures": 3, "lasted_s": 59.5, "log_level": "info"}
    assert logs == [begun, ended]


def test_failures_that_last_are_logged_again_with_their_reason_of_then() -> None:
    times = iter(range(300))
    failures = FailureLog("claim-0", lambda: next(times))

    with capture_logs() as logs:
        for second in range(300):
            failures.failed(ConnectionError("refused" if second < 50 else "password authentication failed"))

    assert [log["failures"] for log in logs] == [1, 61, 121, 241]
    assert logs[1]["reason"] == "password authentication failed"
