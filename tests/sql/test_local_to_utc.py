"""messages.local_to_utc: when the clocks of a time zone show a given time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server

EVER = "-infinity"


def moment(queue: Queue, local: str, begin: str = EVER, zone: str = "Europe/Berlin") -> datetime | None:
    found: datetime | None = queue.value("SELECT messages.local_to_utc(%s, %s, %s)", [zone, local, begin])
    return found


def test_a_time_that_occurs_once_is_converted(queue: Queue) -> None:
    assert moment(queue, "2026-07-01 12:00") == datetime(2026, 7, 1, 10, tzinfo=UTC)


def test_of_a_time_that_occurs_twice_the_first_is_returned(queue: Queue) -> None:
    assert moment(queue, "2026-10-25 02:30") == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)


def test_the_second_is_returned_if_the_first_is_over(queue: Queue) -> None:
    assert moment(queue, "2026-10-25 02:30", "2026-10-25 00:31Z") == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("local", "zone"),
    [
        ("2026-03-29 02:30", "Europe/Berlin"),
        ("2011-12-30 12:00", "Pacific/Apia"),
        ("2018-11-04 00:00", "America/Sao_Paulo"),
    ],
)
def test_a_time_that_the_clocks_skip_is_null(queue: Queue, local: str, zone: str) -> None:
    assert moment(queue, local, zone=zone) is None


def test_a_time_that_is_over_is_null(queue: Queue) -> None:
    assert moment(queue, "2026-07-01 12:00", "2026-07-01 10:00:01Z") is None
