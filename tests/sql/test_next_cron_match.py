"""messages.next_cron_match: the first matching time of the calendar. The expressions themselves: test_next_tick.py."""

from __future__ import annotations

from datetime import datetime

from tests.sql.queue import Queue


def first(queue: Queue, cron: str, begin: str) -> datetime | None:
    found: datetime | None = queue.value(
        "SELECT messages.next_cron_match(c.fields, c.both_days, %s) FROM messages.parse_cron(%s) AS c", [begin, cron]
    )
    return found


def test_the_start_time_itself_may_match(queue: Queue) -> None:
    assert first(queue, "30 8 * * *", "2026-03-01 08:30") == datetime(2026, 3, 1, 8, 30)  # noqa: DTZ001


def test_it_continues_in_the_next_hour_day_month_and_year(queue: Queue) -> None:
    assert first(queue, "30 8 * * *", "2026-12-31 08:31") == datetime(2027, 1, 1, 8, 30)  # noqa: DTZ001
    assert first(queue, "0 9,10 * * *", "2026-12-31 09:01") == datetime(2026, 12, 31, 10)  # noqa: DTZ001


def test_a_day_that_never_occurs_is_null(queue: Queue) -> None:
    assert first(queue, "0 0 30 2 *", "2026-01-01 00:00") is None
