"""messages.latest_ticks: the newest of many ticks, however long no one called."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.sql.queue import Queue

MONDAY = datetime(2026, 11, 16, tzinfo=UTC)
NEWEST = "SELECT messages.latest_ticks(%s, 'Europe/Berlin', %s, %s, %s)"


def newest(queue: Queue, cron: str, first: datetime, until: datetime, count: int) -> list[datetime]:
    found: list[datetime] = queue.value(NEWEST, [cron, first, until, count])
    return found


def test_up_to_the_limit_all_ticks_are_returned(queue: Queue) -> None:
    hours = [MONDAY + timedelta(hours=n) for n in range(5)]

    assert newest(queue, "0 * * * *", MONDAY, hours[-1], 5) == hours
    assert newest(queue, "0 * * * *", MONDAY, hours[-1] + timedelta(minutes=59), 100) == hours


@pytest.mark.parametrize("count", [1, 2, 7])
def test_beyond_the_limit_the_newest_ticks_are_returned_the_oldest_first(queue: Queue, count: int) -> None:
    until = MONDAY + timedelta(days=400, minutes=3)

    found = newest(queue, "*/10 * * * *", MONDAY, until, count)

    last = MONDAY + timedelta(days=400)
    assert found == [last - timedelta(minutes=10 * n) for n in reversed(range(count))]


def test_ticks_in_bursts_are_found_too(queue: Queue) -> None:
    # Every minute of one hour a year.
    found = newest(
        queue, "* 12 1 1 *", datetime(2020, 1, 1, 11, tzinfo=UTC), datetime(2026, 1, 1, 11, 0, 30, tzinfo=UTC), 3
    )

    assert found == [
        datetime(2025, 1, 1, 11, 58, tzinfo=UTC),
        datetime(2025, 1, 1, 11, 59, tzinfo=UTC),
        datetime(2026, 1, 1, 11, 0, tzinfo=UTC),
    ]


def test_ten_years_of_seconds_are_fast(queue: Queue) -> None:
    until = MONDAY + timedelta(days=3650)
    began = queue.value("SELECT clock_timestamp()")

    found = newest(queue, "1 second", MONDAY, until, 2)

    assert found == [until - timedelta(seconds=1), until]
    assert queue.value("SELECT clock_timestamp() - %s < interval '30 s'", [began]) is True
