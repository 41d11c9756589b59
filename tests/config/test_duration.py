"""Durations as users write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgrouse.config import duration
from pgrouse.handlers.outcome import Defer, Retry


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("5s", 5),
        ("250ms", 0.25),
        ("10m", 600),
        ("1h30m", 5400),
        ("1d", 86400),
        ("1.5h", 5400),
        ("0s", 0),
        ("7", 7),
        ("0.1", 0.1),
        (7, 7),
        (0.5, 0.5),
        (timedelta(minutes=1), 60),
        (" 5s ", 5),
    ],
)
def test_a_duration_is_parsed(written: Any, seconds: float) -> None:
    assert duration.parse(written) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "s",
        "5 s",
        "5 apples",
        "-5s",
        "5S",
        "٣s",
        "1e3",
        "inf",
        -1,
        float("nan"),
        float("inf"),
        True,
        None,
        [],
        10**12,
    ],
)
def test_an_invalid_duration_is_refused_with_examples(written: Any) -> None:
    with pytest.raises(ValueError, match='expected a duration like "250ms"'):
        duration.parse(written)


@pytest.mark.parametrize("given", [timedelta(seconds=90), 90, 90.0, "90", "90s", "1m30s", " 1m30s "])
def test_code_accepts_a_duration_in_three_forms(given: Any) -> None:
    assert duration.to_timedelta(given, "delay") == timedelta(seconds=90)
    assert Retry(after=given).after == Defer(after=given).after == timedelta(seconds=90)


@pytest.mark.parametrize(
    "given", ["soon", "5 apples", "-5s", "", -1, float("nan"), float("inf"), timedelta(seconds=-1)]
)
def test_an_invalid_duration_is_reported_with_its_value_and_the_forms(given: Any) -> None:
    with pytest.raises(ValueError, match=r'^delay is .*: give a timedelta, a number of seconds, or a text like "5s"'):
        duration.to_timedelta(given, "delay")


@pytest.mark.parametrize("given", [True, None, [], b"5s"])
def test_a_value_of_another_type_is_a_type_error(given: Any) -> None:
    with pytest.raises(TypeError, match=r"^delay has the type \w+: give a timedelta, a number of seconds, or a text"):
        duration.to_timedelta(given, "delay")


@given(st.timedeltas(timedelta(0), timedelta(days=9999)))
def test_a_formatted_duration_is_parsed_as_the_same(value: timedelta) -> None:
    assert duration.parse(duration.show(value)) == value
