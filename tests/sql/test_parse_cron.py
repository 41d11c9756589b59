"""messages.parse_cron: what a cron expression means."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue

READ = "SELECT * FROM messages.parse_cron(%s)"


def test_five_fields_are_five_sets(queue: Queue) -> None:
    cron = queue.row(READ, ["1 2 3 4 5"])

    assert cron.fields == [1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5]
    assert (cron.problem, cron.seconds) == (None, None)


@pytest.mark.parametrize(
    ("cron", "both"), [("0 0 1 * *", True), ("0 0 * * 1", True), ("0 0 */2 * 1", True), ("0 0 1 * 1", False)]
)
def test_a_day_must_match_both_of_its_fields_if_one_begins_with_a_star(queue: Queue, cron: str, both: bool) -> None:
    assert queue.row(READ, [cron]).both_days is both


@pytest.mark.parametrize(
    ("cron", "wild"), [("0 * * * *", True), ("*/5 3 * * *", True), ("0 3 * * *", False), ("0 0-23 * * *", False)]
)
def test_it_follows_the_hours_that_pass_if_minute_or_hour_begins_with_a_star(
    queue: Queue, cron: str, wild: bool
) -> None:
    assert queue.row(READ, [cron]).wild is wild


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@Annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ],
)
def test_names_are_short_for_expressions(queue: Queue, name: str, same: str) -> None:
    assert queue.row(READ, [name]) == queue.row(READ, [same])


@pytest.mark.parametrize(
    ("cron", "seconds"), [("1 second", 1), ("30 seconds", 30), ("15s", 15), ("86400 secs", 86400), (" 5  Seconds ", 5)]
)
def test_an_interval_is_a_number_of_seconds(queue: Queue, cron: str, seconds: int) -> None:
    cron = queue.row(READ, [cron])

    assert (cron.seconds, cron.problem) == (seconds, None)


@pytest.mark.parametrize("cron", ["0 seconds", "86401 seconds"])
def test_an_interval_has_bounds(queue: Queue, cron: str) -> None:
    read = queue.row(READ, [cron])

    assert (read.problem, read.hint) == (f'interval is "{cron}"', "use 1 seconds to 86400 seconds")


@pytest.mark.parametrize(
    "cron", ["", " ", "* * * *", "0 * * * * *", "@reboot", "@every 5m", "daily", "5 minutes", "-5 seconds"]
)
def test_an_invalid_expression_is_reported_with_the_fix(queue: Queue, cron: str) -> None:
    read = queue.row(READ, [cron])

    assert read.problem == f'expression is "{cron}"'
    assert read.hint.startswith("use five fields (minute hour day-of-month month day-of-week), @hourly")


def test_an_expression_longer_than_a_thousand_characters_is_refused_and_not_shown_completely(queue: Queue) -> None:
    read = queue.row(READ, ["0" + ",0" * 500 + " * * * *"])

    assert read.problem.startswith('expression is "0,0,0')
    assert len(read.problem) < 150


def test_an_invalid_field_is_named(queue: Queue) -> None:
    assert queue.row(READ, ["0 0 * * 1,x"]).problem == 'day of week is "1,x"'
