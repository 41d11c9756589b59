"""messages.parse_cron_field: one field of a cron expression as a set of bits."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


def numbers(queue: Queue, setting: str, text: str) -> list[int]:
    """Return the numbers that the field matches."""
    field = queue.row("SELECT * FROM messages.parse_cron_field(%s, %s)", [setting, text])
    assert (field.problem, field.hint) == (None, None)
    return [n for n in range(64) if field.bits >> n & 1]


@pytest.mark.parametrize(
    ("setting", "text", "expected"),
    [
        ("minute", "*", list(range(60))),
        ("minute", "0", [0]),
        ("minute", "*/20", [0, 20, 40]),
        ("minute", "5/20", [5, 25, 45]),
        ("minute", "10-20/5,59", [10, 15, 20, 59]),
        ("hour", "00,9-11", [0, 9, 10, 11]),
        ("day of month", "*/15", [1, 16, 31]),
        ("day of month", "15,L", [0, 15]),
        ("day of month", "$", [0]),
        ("month", "jan,NOV-Dec", [1, 11, 12]),
        ("day of week", "mon-fri", [1, 2, 3, 4, 5]),
        ("day of week", "7", [0]),
        ("day of week", "5-7", [0, 5, 6]),
        ("day of week", "*", list(range(7))),
        ("day of week", "*/2", [0, 2, 4, 6]),
    ],
)
def test_numbers_names_lists_ranges_and_steps_are_parsed(
    queue: Queue, setting: str, text: str, expected: list[int]
) -> None:
    assert numbers(queue, setting, text) == expected


@pytest.mark.parametrize(
    ("setting", "text", "fix"),
    [
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
    ],
)
def test_an_invalid_field_is_reported_with_the_fix(queue: Queue, setting: str, text: str, fix: str) -> None:
    field = queue.row("SELECT * FROM messages.parse_cron_field(%s, %s)", [setting, text])

    assert field.problem == f'{setting} is "{text}"'
    assert field.hint.startswith(fix)
