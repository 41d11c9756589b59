"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgrouse.config import duration


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
def test_a_duration_is_read(written: Any, seconds: float) -> None:
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
def test_what_is_no_duration_is_refused_with_examples(written: Any) -> None:
    with pytest.raises(ValueError, match='expected a duration like "250ms"'):
        duration.parse(written)


@given(st.timedeltas(timedelta(0), timedelta(days=9999)))
def test_a_duration_that_was_written_reads_as_the_same(value: timedelta) -> None:
    assert duration.parse(duration.show(value)) == value
