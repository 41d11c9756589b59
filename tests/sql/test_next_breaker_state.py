"""messages.next_breaker_state: every transition of a breaker."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.sql.queue import Queue

POLICY = {"failure_rate": 0.5, "min_attempts": 4, "window": "1m", "pause": "30s"}
AFTER = """
    SELECT (r.b).position, (r.b).succeeded, (r.b).failed, (r.b).reason,
           extract(epoch FROM (r.b).probe_at - '2026-01-01 12:00+00')::int AS probe_in_s,
           (r.b).changed_at = '2026-01-01 12:00+00' AS changed
    FROM (SELECT messages.next_breaker_state(
      ROW('t', %(position)s, timestamptz '2026-01-01 12:00+00' - %(window_began)s::interval, %(succeeded)s, %(failed)s, '2026-01-01',
          timestamptz '2026-01-01 12:00+00' + %(probe_in)s::interval, NULL)::messages.breaker,
      %(policy)s, %(more_succeeded)s, %(more_failed)s, '2026-01-01 12:00+00') AS b) AS r
"""


def after(queue: Queue, more_succeeded: int, more_failed: int, *, policy: dict[str, Any] = POLICY, **was: Any) -> Any:
    given = {"position": "closed", "window_began": "10 s", "succeeded": 0, "failed": 0, "probe_in": None} | was
    return queue.row(
        AFTER, given | {"policy": Jsonb(policy), "more_succeeded": more_succeeded, "more_failed": more_failed}
    )


@pytest.mark.parametrize(("succeeded", "failed"), [(0, 3), (3, 0), (100, 0), (3, 2)])
def test_it_stays_closed_while_too_few_attempts_ended_or_too_few_failed(
    queue: Queue, succeeded: int, failed: int
) -> None:
    assert after(queue, succeeded, failed)[:3] == ("closed", succeeded, failed)


@pytest.mark.parametrize(("succeeded", "failed"), [(0, 4), (2, 2), (1, 1000)])
def test_it_opens_once_enough_attempts_ended_and_enough_of_them_failed(
    queue: Queue, succeeded: int, failed: int
) -> None:
    opened = after(queue, succeeded, failed)

    assert (opened.position, opened.probe_in_s, opened.changed) == ("open", 30, True)
    assert opened.reason.startswith(f"{failed} of {succeeded + failed} attempts failed since ")


def test_it_counts_over_several_calls(queue: Queue) -> None:
    assert after(queue, 0, 1, succeeded=2, failed=1).position == "open"


def test_attempts_before_the_window_do_not_count(queue: Queue) -> None:
    assert after(queue, 0, 1, window_began="1 minute", succeeded=2, failed=1)[:3] == ("closed", 0, 1)


@pytest.mark.parametrize(("succeeded", "failed"), [(5, 0), (0, 5), (3, 3)])
def test_while_it_is_open_the_ends_of_earlier_attempts_are_ignored(queue: Queue, succeeded: int, failed: int) -> None:
    still = after(queue, succeeded, failed, position="open", probe_in="10 s")

    assert (still.position, still.probe_in_s, still.changed) == ("open", 10, False)


def test_a_successful_probe_closes_it_and_the_counters_start_again(queue: Queue) -> None:
    closed = after(queue, 1, 0, position="open", probe_in="-1 s", succeeded=2, failed=9)

    assert (closed[:3], closed.probe_in_s, closed.changed) == (("closed", 0, 0), None, True)


@pytest.mark.parametrize("succeeded", [0, 5])
def test_a_failed_probe_opens_it_for_another_pause(queue: Queue, succeeded: int) -> None:
    opened = after(queue, succeeded, 1, position="open", probe_in="-1 s")

    assert (opened.position, opened.probe_in_s, opened.changed) == ("open", 30, True)


def test_without_a_probe_it_stays_half_open(queue: Queue) -> None:
    assert after(queue, 0, 0, position="open", probe_in="-1 s").changed is False


def test_missing_settings_of_a_policy_have_defaults(queue: Queue) -> None:
    assert after(queue, 10, 9, policy={}).position == "closed"
    assert after(queue, 10, 10, policy={}).probe_in_s == 30
