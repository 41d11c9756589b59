"""messages.check_time_zone: the problem of a time zone that a schedule cannot have."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server

CHECK = "SELECT * FROM messages.check_time_zone(%s)"


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Etc/GMT-2", "America/Argentina/Buenos_Aires", "GMT"])
def test_a_name_that_the_server_knows_has_no_problem(queue: Queue, zone: str) -> None:
    assert queue.row(CHECK, [zone]) == (None, None)


@pytest.mark.parametrize(
    ("zone", "fix", "clock"),
    [
        ("+02:00", "Etc/GMT-2", "01 02"),
        ("+2", "Etc/GMT-2", "01 02"),
        ("-0300", "Etc/GMT+3", "30 21"),
        ("UTC+2", "Etc/GMT-2", "01 02"),
        ("utc-05", "Etc/GMT+5", "30 19"),
        ("GMT+11", "Etc/GMT-11", "01 11"),
    ],
)
def test_an_offset_is_refused_with_the_name_that_means_it(queue: Queue, zone: str, fix: str, clock: str) -> None:
    problem, hint = queue.row(CHECK, [zone])

    assert problem == f'is "{zone}", which PostgreSQL counts in the other direction'
    assert hint == f"use the name of a region, like Europe/Berlin, or {fix}"
    shown = queue.value("SELECT to_char(timestamptz '2026-07-01 00:00+00' AT TIME ZONE %s, 'DD HH24')", [fix])
    assert shown == clock


@pytest.mark.parametrize("zone", ["CET", "EET", "MET", "WET"])
def test_an_abbreviation_that_would_lose_daylight_saving_time_is_refused(queue: Queue, zone: str) -> None:
    problem, hint = queue.row(CHECK, [zone])

    assert problem == f'is "{zone}", which has no daylight saving time in PostgreSQL'
    assert hint == "use the name of a region, like Europe/Berlin"
    assert queue.value("SELECT (timestamptz '2026-07-01 12:00+00' AT TIME ZONE %s)::text < '2026-07-01 14:30'", [zone])


@pytest.mark.parametrize(
    "zone", ["CEST", "IST", "Europe/Berlyn", "<+02>-2", "+05:30", "UTC+13", "", "EST5EDT4", "UTC2", None]
)
def test_anything_else_is_refused(queue: Queue, zone: str | None) -> None:
    problem, hint = queue.row(CHECK, [zone])

    assert problem == f'is "{"NULL" if zone is None else zone}"'
    assert hint.startswith("use an IANA name, like ")


def test_the_name_is_proposed_that_was_written_otherwise(queue: Queue) -> None:
    assert queue.row(CHECK, ["berlin"])[1] == "use an IANA name, like Europe/Berlin"
