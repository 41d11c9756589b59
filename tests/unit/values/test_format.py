"""Values as people read them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pgrouse.values.format import show_age, show_estimate, sparkline
from pgrouse.web.page import formatting
from tests.durations import DURATIONS


@pytest.mark.parametrize(("seconds", "shown"), DURATIONS)
def test_a_duration_has_one_unit(seconds: float, shown: str) -> None:
    assert show_age(seconds) == shown
    assert show_age(timedelta(seconds=seconds)) == shown


def test_the_highest_bar_of_a_sparkline_is_full_zero_is_a_dot_and_nothing_a_blank() -> None:
    assert sparkline([0, 1, 40, 80, None, 79]) == "·▁▅█ █"
    assert sparkline([0, None]) == "· "
    assert sparkline([]) == ""


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (9_999, "≈ 10,000"),
        (10_000, "≈ 10,000"),
        (52_113, "≈ 52,000"),
        (99_600, "≈ 100k"),
        (521_130, "≈ 520k"),
        (999_999, "≈ 1M"),
        (1_249_000, "≈ 1.2M"),
        (12_490_000, "≈ 12M"),
    ],
)
def test_an_estimate_has_two_digits(count: int, shown: str) -> None:
    assert show_estimate(count, is_estimate=True) == shown
    assert show_estimate(count, is_estimate=False) == f"{count:,}"


@pytest.mark.parametrize(
    ("per_s", "text"),
    [
        (None, "\N{EN DASH}"),
        (0, "0/s"),
        (0.001, "< 0.01/s"),
        (0.0167, "0.02/s"),
        (0.5, "0.5/s"),
        (43.62, "43.6/s"),
        (1234, "1,234/s"),
        (52_000, "52 k/s"),
    ],
)
def test_rates_have_one_unit(per_s: float | None, text: str) -> None:
    assert formatting.rate(per_s) == text
