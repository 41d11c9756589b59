"""messages.next_ticks: a preview of when an expression ticks."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from psycopg import errors

from tests.sql.queue import Queue


def ticks(queue: Queue, *arguments: object) -> list[datetime]:
    marks = ", ".join(["%s"] * len(arguments))
    return [row.at for row in queue.rows(f"SELECT t AS at FROM messages.next_ticks({marks}) AS t", arguments)]


def test_it_returns_five_ticks_from_the_servers_time(queue: Queue) -> None:
    queue.stop_clock("2026-11-16 09:00:00+00")

    found = ticks(queue, "0 9 * * *", "Europe/Berlin")

    assert found == [datetime(2026, 11, day, 8, tzinfo=UTC) for day in range(17, 22)]


def test_it_returns_any_number_of_ticks_from_a_given_time(queue: Queue) -> None:
    found = ticks(queue, "0 0 29 2 *", "UTC", 2, datetime(2026, 1, 1, tzinfo=UTC))

    assert found == [datetime(2028, 2, 29, tzinfo=UTC), datetime(2032, 2, 29, tzinfo=UTC)]


def test_a_day_that_never_occurs_has_none(queue: Queue) -> None:
    assert ticks(queue, "0 0 30 2 *") == []


@pytest.mark.parametrize("count", [0, 1001, None])
def test_the_count_has_bounds(queue: Queue, count: int | None) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="count of next_ticks is") as caught:
        ticks(queue, "@daily", "UTC", count)

    assert caught.value.diag.message_hint == "use 1 to 1000"


def test_an_unreadable_expression_is_refused_with_the_fix(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match='cron: minute is "60"') as caught:
        ticks(queue, "60 * * * *")

    assert str(caught.value.diag.message_hint).startswith("use * or 0 to 59")


@pytest.mark.parametrize(
    ("zone", "fix"), [("+02:00", "or Etc/GMT-2"), ("CET", "like Europe/Berlin"), ("Mars/Base", "like UTC")]
)
def test_a_time_zone_that_a_schedule_may_not_have_is_refused(queue: Queue, zone: str, fix: str) -> None:
    with pytest.raises(errors.InvalidParameterValue, match=f'time_zone is "{re.escape(zone)}"') as caught:
        ticks(queue, "@daily", zone)

    assert fix in str(caught.value.diag.message_hint)
