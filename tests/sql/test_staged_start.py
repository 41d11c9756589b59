"""messages.staged_start: when a staged row becomes available."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


@pytest.mark.parametrize(
    ("available_at", "delay", "expected"),
    [(None, None, "2030-01-01"), (None, "1 day", "2030-01-02"), ("2029-01-01", None, "2029-01-01")],
)
def test_it_is_the_time_given_or_the_delay_from_now(
    queue: Queue, available_at: str | None, delay: str | None, expected: str
) -> None:
    start = "messages.staged_start(%s, %s, '2030-01-01 00:00+00') AT TIME ZONE 'UTC'"

    assert str(queue.value(f"SELECT ({start})::date", [available_at and f"{available_at} 00:00+00", delay])) == expected
