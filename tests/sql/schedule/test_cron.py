"""Cron expressions and time zones."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue

# messages.parse_cron: what a cron expression means.

READ = "SELECT * FROM messages.parse_cron(%s)"


def test_an_interval_is_a_number_of_seconds_within_bounds(queue: Queue) -> None:
    seconds = {"1 second": 1, "30 seconds": 30, "15s": 15, "86400 secs": 86400, " 5  Seconds ": 5}

    assert {cron: queue.row(READ, [cron]).seconds for cron in seconds} == seconds
    for cron in ("0 seconds", "86401 seconds"):
        read = queue.row(READ, [cron])
        assert (read.problem, read.hint) == (f'interval is "{cron}"', "use 1 seconds to 86400 seconds")


def test_an_invalid_expression_is_reported_with_the_fix(queue: Queue) -> None:
    fix = "use five fields (minute hour day-of-month month day-of-week), six with the second before"
    for cron in ("", " ", "* * * *", "0 0 * * * * 2027", "@reboot", "@every 5m", "daily", "5 minutes", "-5 seconds"):
        read = queue.row(READ, [cron])

        assert (read.problem, read.hint[: len(fix)]) == (f'expression is "{cron}"', fix)


def test_an_expression_longer_than_a_thousand_characters_is_refused_and_not_shown_completely(queue: Queue) -> None:
    read = queue.row(READ, ["0" + ",0" * 500 + " * * * *"])

    assert read.problem.startswith('expression is "0,0,0')
    assert len(read.problem) < 150


# messages.parse_cron_field: one field of a cron expression as a set of bits.


INVALID_FIELDS = [
    ("second", "60", "use * or 0 to 59, lists like 1,3, ranges like 1-5 and steps like */2"),
    ("second", "*/60", "use a step from 1 to 59"),
    ("day of month", "?", "use * or 1 to 31 or L for the last day"),
    ("minute", "60", "use * or 0 to 59, lists like 1,3, ranges like 1-5 and steps like */2"),
    ("minute", "", "use * or 0 to 59"),
    ("minute", "1,", "use * or 0 to 59"),
    ("minute", "a", "use * or 0 to 59"),
    ("minute", "-5", "use * or 0 to 59"),
    ("minute", "*-5", "use * or 0 to 59"),
    ("minute", "1-2-3", "use * or 0 to 59"),
    ("minute", "L", "use * or 0 to 59"),
    ("minute", "999999999999", "use * or 0 to 59"),
    ("hour", "24", "use * or 0 to 23"),
    ("hour", "mon", "use * or 0 to 23"),
    ("hour", "1-24", "use * or 0 to 23"),
    ("day of month", "0", "use * or 1 to 31 or L for the last day"),
    ("month", "13", "use * or 1 to 12 or jan to dec"),
    ("month", "january", "use * or 1 to 12 or jan to dec"),
    ("day of week", "8", "use * or 0 to 7 (0 and 7 are Sunday) or sun to sat"),
    ("day of week", "fri-mon", "a range goes up: use 5-7,0-1"),
    ("hour", "22-2", "a range goes up: use 22-23,0-2"),
    ("minute", "*/0", "use a step from 1 to 59"),
    ("minute", "*/90", "use a step from 1 to 59"),
    ("hour", "*/24", "use a step from 1 to 23"),
]


def test_an_invalid_field_is_reported_with_the_fix(queue: Queue) -> None:
    for setting, text, fix in INVALID_FIELDS:
        field = queue.row("SELECT * FROM messages.parse_cron_field(%s, %s)", [setting, text])

        assert (field.problem, field.hint[: len(fix)]) == (f'{setting} is "{text}"', fix)


# messages.check_time_zone: the problem of a time zone that a schedule cannot have.

CHECK_TIME_ZONE_CHECK = "SELECT * FROM messages.check_time_zone(%s)"


@pytest.mark.every_server
def test_a_name_that_the_server_knows_has_no_problem(queue: Queue) -> None:
    for zone in ("UTC", "Europe/Berlin", "Etc/GMT-2", "America/Argentina/Buenos_Aires", "GMT"):
        assert queue.row(CHECK_TIME_ZONE_CHECK, [zone]) == (None, None), zone


OFFSETS = [
    ("+02:00", "Etc/GMT-2", "01 02"),
    ("+2", "Etc/GMT-2", "01 02"),
    ("-0300", "Etc/GMT+3", "30 21"),
    ("UTC+2", "Etc/GMT-2", "01 02"),
    ("utc-05", "Etc/GMT+5", "30 19"),
    ("GMT+11", "Etc/GMT-11", "01 11"),
]


@pytest.mark.every_server
def test_an_offset_is_refused_with_the_name_that_means_it(queue: Queue) -> None:
    for zone, fix, clock in OFFSETS:
        problem, hint = queue.row(CHECK_TIME_ZONE_CHECK, [zone])

        assert problem == f'is "{zone}", which PostgreSQL counts in the other direction'
        assert hint == f"use the name of a region, like Europe/Berlin, or {fix}"
        shown = queue.value("SELECT to_char(timestamptz '2026-07-01 00:00+00' AT TIME ZONE %s, 'DD HH24')", [fix])
        assert (zone, shown) == (zone, clock)


@pytest.mark.every_server
def test_an_abbreviation_that_would_lose_daylight_saving_time_is_refused(queue: Queue) -> None:
    in_summer = "SELECT (timestamptz '2026-07-01 12:00+00' AT TIME ZONE %s)::text < '2026-07-01 14:30'"
    for zone in ("CET", "EET", "MET", "WET"):
        problem, hint = queue.row(CHECK_TIME_ZONE_CHECK, [zone])

        assert problem == f'is "{zone}", which has no daylight saving time in PostgreSQL'
        assert hint == "use the name of a region, like Europe/Berlin"
        assert queue.value(in_summer, [zone]) is True


@pytest.mark.every_server
def test_anything_else_is_refused_with_a_name_that_is_like_it(queue: Queue) -> None:
    for zone in ("CEST", "IST", "Europe/Berlyn", "<+02>-2", "+05:30", "UTC+13", "", "EST5EDT4", "UTC2", None):
        problem, hint = queue.row(CHECK_TIME_ZONE_CHECK, [zone])

        assert problem == f'is "{"NULL" if zone is None else zone}"'
        assert hint.startswith("use an IANA name, like ")
    assert queue.row(CHECK_TIME_ZONE_CHECK, ["berlin"])[1] == "use an IANA name, like Europe/Berlin"


# messages.dst_change: when the clocks of a time zone change.


@pytest.mark.every_server
@pytest.mark.parametrize(
    ("zone", "after", "until", "expected"),
    [
        ("Europe/Berlin", "2026-03-28 12:00Z", "2026-03-29 12:00Z", "2026-03-29 01:00Z"),
        ("Europe/Berlin", "2026-10-25 00:59:59.5Z", "2026-10-25 01:00Z", "2026-10-25 01:00Z"),
        ("Australia/Lord_Howe", "2026-04-04 00:00Z", "2026-04-05 00:00Z", "2026-04-04 15:00Z"),
        ("Pacific/Apia", "2011-12-30 00:00Z", "2011-12-31 00:00Z", "2011-12-30 10:00Z"),
    ],
)
def test_the_moment_is_found_to_the_second(queue: Queue, zone: str, after: str, until: str, expected: str) -> None:
    assert queue.value("SELECT messages.dst_change(%s, %s, %s) = %s", [zone, after, until, expected]) is True
