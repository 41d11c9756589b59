"""Charts: ticks, the clock, and what the pointer shows."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.sql.queue import Queue
from tests.web import sample_data
from tests.web.site import Visitor, is_live

# How many seconds the unit of a duration has.
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400}
# Half an hour off UTC, and no summer time.
KOLKATA: Any = {"timezone_id": "Asia/Kolkata"}


def ticks(page: Page, chart: str, axis: int = 1) -> tuple[list[float], list[str]]:
    """Return the values of the ticks of an axis, and their labels."""
    drawn = f"plots.get('{chart}').plot.axes[{axis}]"
    page.wait_for_function(f"plots.get('{chart}') && {drawn}._splits?.length > 1")
    # At once: an update of the page may draw them again.
    values, labels = page.evaluate(f"[{drawn}._splits, {drawn}._values]")
    return values, labels


def test_the_label_of_a_tick_of_a_rate_is_its_value(visitor: Visitor, queue: Queue) -> None:
    sample_data.measured(queue)
    page = visitor.open("/")
    ticks(page, "throughput")
    page.evaluate("live.stop()")

    for per_second in (0.25, 0.67, 1.25, 208, 2057, 1_250_000):
        page.evaluate(
            "most => draw($('#throughput'), {unit: '/s', series: [{name: 'success', colour: 1}], x: [0, 60, 120],"
            " y: [[0, most, most / 3]]})",
            per_second,
        )
        values, labels = ticks(page, "throughput")

        shown = [float(label.rstrip("KM")) * {"K": 1e3, "M": 1e6}.get(label[-1], 1) for label in labels]
        assert shown == pytest.approx(values, rel=1e-9)


@pytest.mark.long
def test_latencies_of_all_sizes_are_readable_and_their_ticks_exact(visitor: Visitor, queue: Queue) -> None:
    sample_data.measured(queue)
    page = visitor.open("/")
    # An update would draw what was measured instead.
    page.evaluate("live.stop()")
    page.evaluate(
        "draw($('#latencies'), {unit: 's', series: [{name: 'wait', colour: 1}, {name: 'run', colour: 2}],"
        " x: [0, 60, 120], y: [[150, 420, null], [0.004, 0.02, 0]]})"
    )

    values, labels = ticks(page, "latencies")

    parts = [re.fullmatch(r"([\d.]+)(\D+)", label) for label in labels]
    assert [float(part[1]) * UNITS[part[2]] for part in parts if part] == pytest.approx(values)
    # Each line has its own part of the height.
    heights = page.evaluate("[150, 0.004].map((y) => plots.get('latencies').plot.valToPos(y, 'y'))")
    whole = page.evaluate("plots.get('latencies').plot.over.clientHeight")
    assert 0 < heights[0] < heights[1] - whole / 3


@pytest.mark.long
def test_charts_and_texts_have_one_clock_which_the_user_chooses(visitor: Visitor, queue: Queue) -> None:
    sample_data.measured(queue)
    id_ = queue.publish("mail")
    page = visitor.open("/", **KOLKATA)
    in_utc = dict(zip(*ticks(page, "throughput", 0), strict=True))
    moment = "time[data-moment]"

    page.get_by_role("button", name="UTC").click()
    local = dict(zip(*ticks(page, "throughput", 0), strict=True))
    page.goto(f"/messages/{id_}")

    # A minute may have begun in between, and the first tick be another one.
    both = in_utc.keys() & local.keys()
    assert {(_minutes(local[tick]) - _minutes(in_utc[tick])) % 1440 for tick in both} == {330}
    expect(page.locator(moment).first).to_have_text(re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d GMT\+5:30$"))
    shown = page.locator(moment).first.text_content()
    is_live(page)
    queue.claim("mail", limit=1)
    expect(page.locator("main")).to_contain_text("attempt 1 began")
    expect(page.locator(moment).first).to_have_text(shown or "")

    page.get_by_role("button", name="Local").click()
    expect(page.locator(moment).first).to_have_text(re.compile("UTC$"))


@pytest.mark.long
def test_the_pointer_shows_the_values_of_a_time(visitor: Visitor, queue: Queue) -> None:
    sample_data.measured(queue)
    page = visitor.open("/")
    ticks(page, "throughput")

    page.locator("#throughput .u-over").hover()

    expect(page.locator("#throughput .legend")).to_contain_text(re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:00 UTC"))


@pytest.mark.long
def test_the_user_chooses_the_percentile_for_all_charts_and_pages(visitor: Visitor, queue: Queue) -> None:
    queue.conn.execute(
        """INSERT INTO messages.measure (minute, topic, success, waits, runs)
           SELECT date_trunc('minute', messages.now()) - n * interval '1 min', 'mail', 100,
                  98 * 10::numeric ^ (12 * 30) + 2 * 10::numeric ^ (12 * 10), 10::numeric ^ (12 * 25)
           FROM generate_series(1, 5) AS n"""
    )
    queue.publish("mail")
    page = visitor.open("/")
    ticks(page, "latencies")
    wait = page.locator("#latencies .legend b").first
    at_95 = wait.inner_text()

    page.get_by_role("button", name="p99").click()

    expect(wait).not_to_have_text(at_95)
    page.goto("/topics/mail")
    expect(page.get_by_role("button", name="p99")).to_have_attribute("aria-pressed", "true")
    ticks(page, "latencies")
    at_99 = wait.inner_text()
    page.get_by_role("button", name="p95").click()
    expect(wait).to_have_text(at_95)
    assert _seconds(at_99) > 100 * _seconds(at_95)


@pytest.mark.long
def test_a_stored_percentile_that_there_is_not_shows_the_usual_one(visitor: Visitor, queue: Queue) -> None:
    sample_data.measured(queue)
    page = visitor.open("/")
    page.evaluate("localStorage.setItem('quantile', 'p12')")

    page.reload()

    ticks(page, "latencies")
    expect(page.locator("#latencies .legend b").first).to_have_text(re.compile(r"\d"))


def _seconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(\D+)", text).groups()  # type: ignore[union-attr]
    return float(number) * UNITS[unit]


def _minutes(label: str) -> int:
    hours, minutes = label.split(":")[:2]
    return int(hours) * 60 + int(minutes)
