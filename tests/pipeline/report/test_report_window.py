"""The window of a report, and the meaning of its SLOs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pyspark_pgrouse.report.slo import Slo
from pyspark_pgrouse.report.window import POINTS, Window

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("length", "bucket_s"),
    [(timedelta(seconds=90), 1), (HOUR, 15), (24 * HOUR, 300), (7 * 24 * HOUR, 3600), (2000 * 24 * HOUR, 7 * 86400)],
)
def test_a_bucket_is_as_wide_as_the_points_of_a_chart_allow(length: timedelta, bucket_s: int) -> None:
    window = Window(NOON - length, NOON)

    assert window.bucket_s == bucket_s
    assert len(window.starts()) <= POINTS


def test_the_first_bucket_is_aligned_and_may_begin_before_the_window() -> None:
    window = Window(NOON - 24 * HOUR + timedelta(seconds=1), NOON)

    starts = window.starts()

    assert starts[0] == NOON - 24 * HOUR
    assert starts[-1] == NOON - timedelta(minutes=5)


def test_a_window_that_is_mostly_empty_shrinks_to_its_rows() -> None:
    window = Window(NOON - 24 * HOUR, NOON)

    fitted = window.fitted(NOON - 40 * timedelta(minutes=1), NOON - 20 * timedelta(minutes=1))

    assert fitted == Window(NOON - 41 * timedelta(minutes=1), NOON - 19 * timedelta(minutes=1))
    assert window.fitted(NOON - 11 * HOUR, NOON - HOUR).since == NOON - 11.5 * HOUR


def test_a_full_compared_or_empty_window_is_not_shortened() -> None:
    window = Window(NOON - 24 * HOUR, NOON)
    compared = Window.after_baseline(NOON - 24 * HOUR, NOON, HOUR)

    assert window.fitted(NOON - 20 * HOUR, NOON - HOUR) == window
    assert compared.fitted(NOON - HOUR, NOON) == compared
    assert window.fitted(None, None) == window


def test_a_baseline_is_before_the_window_and_a_deploy_in_it() -> None:
    baseline = Window.after_baseline(NOON - HOUR, NOON, 24 * HOUR)
    deploy = Window(NOON - HOUR, NOON, mark=NOON - HOUR / 4)

    assert (baseline.first, baseline.before_s, baseline.after_s, baseline.is_deploy) == (
        NOON - 25 * HOUR,
        86400,
        3600,
        False,
    )
    assert (deploy.first, deploy.before_s, deploy.after_s, deploy.is_deploy) == (NOON - HOUR, 2700, 900, True)


@pytest.mark.parametrize(
    ("text", "slo"),
    [
        ("99%:5s", Slo(0.99, timedelta(seconds=5))),
        ("order.placed=99.9%:2s", Slo(0.999, timedelta(seconds=2), "order.placed")),
        ("a=b:c=50%:1h30m", Slo(0.5, timedelta(hours=1.5), "a=b:c")),
    ],
)
def test_an_slo_is_parsed(text: str, slo: Slo) -> None:
    assert Slo.parse(text) == slo
    assert slo.name == text


@pytest.mark.parametrize("text", ["", "99%", "100%:5s", "0%:5s", "99:5s", "99%:soon", "99%:0s", "=99%:5s", "99%:-5s"])
def test_an_invalid_goal_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected an? (SLO like \"99%:5s\"|duration)"):
        Slo.parse(text)
