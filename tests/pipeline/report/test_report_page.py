"""The page, as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest
from markupsafe import Markup

from pyspark_pgrouse.report.html import chart, formatting, svg
from pyspark_pgrouse.report.html.chart import SIZES, Chart, Series
from pyspark_pgrouse.report.slo import Slo
from pyspark_pgrouse.report.window import Window
from tests.pipeline.reports import (
    DAY,
    HOSTILE,
    UNTIL,
    Message,
    crowded,
    hostile,
    message,
    nothing,
    page_of,
    report,
    rich,
)

UP, DASH, ARROW = "\N{BLACK UP-POINTING TRIANGLE}", "\N{EN DASH}", "\N{RIGHTWARDS ARROW}"
WARNING = "\N{WARNING SIGN}\N{VARIATION SELECTOR-15}"
VOID = {"meta", "br", "wbr", "img", "link", "input"}


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw nothing: the text of a page does not depend on its drawings, which take longer than all else."""
    for module in (chart, svg):
        monkeypatch.setattr(module, "drawing", lambda *_: Markup())


class Outline(HTMLParser):
    """The elements of a page, checked: each is closed where it was opened, and none requests anything."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []
        assert "link" not in self.names
        assert [key for key, _ in self.attributes if key in ("src", "href", "srcset", "data", "action")] == []
        assert "url(" not in re.sub(r"<(?!style)[^>]*>[^<]*", "", html)
        assert "default-src 'none'" in html

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.names.append(name)
        self.attributes += [(key, value or "") for key, value in attributes]
        if name not in VOID:
            self._open.append(name)

    def handle_startendtag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.names.append(name)
        self.attributes += [(key, value or "") for key, value in attributes]

    def handle_endtag(self, name: str) -> None:
        assert self._open.pop() == name


def words(html: str) -> str:
    """The text of a page, with normalized blanks."""
    body = re.sub(r"<(style|script)>.*?</\1>", "", html, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", body.replace("<wbr>", "")).replace(formatting.GAP, " ").split())


@pytest.mark.long
def test_the_page_has_window_source_rows_creation_time_and_time_zone() -> None:
    output = words(page_of(rich))

    assert "Window 2026-11-21 10:00 to 2026-11-22 10:00 UTC (24h)" in output
    assert "Source lake s3a://warehouse/queue" in output
    assert "Read 4,011 archived messages" in output
    assert re.search(r"Made 20\d\d-\d\d-\d\d \d\d:\d\d", output)
    assert "All times are UTC" in output


def test_the_page_has_every_section_closes_every_element_and_requests_nothing() -> None:
    html = page_of(rich)

    outline = Outline(html)

    parts = [value for key, value in outline.attributes if key == "id"]
    assert parts == [
        *("changes", "slo", "weeks", "cost"),
        *("throughput", "latency", "failures", "capacity", "retries", "channels"),
    ]


def test_a_report_without_data_says_so() -> None:
    output = words(page_of(nothing))

    Outline(page_of(nothing))
    assert "No message ended from 2026-11-21 10:00 to 2026-11-22 10:00 UTC" in output
    assert "Throughput" not in output


def test_hostile_text_is_shown_and_never_executed() -> None:
    html = page_of(hostile)

    outline = Outline(html)

    assert outline.names.count("script") == 1
    assert "img" not in outline.names
    assert [key for key, _ in outline.attributes if key.startswith("on")] == []
    assert "<title>pgrouse report" in html
    assert "&lt;/title&gt;&lt;script&gt;fetch(" in html
    assert "{{ 7 * 7 }}" in words(html)
    assert "\u202e" not in html
    assert "\x1b" not in html


@pytest.mark.long
def test_a_thousand_topics_and_many_messages_make_a_page_below_a_megabyte() -> None:
    html = page_of(crowded)

    assert len(html.encode()) < 1_000_000
    assert "The first 20 of 1,003; all are in the table latency_by_topic" in words(html)


@pytest.mark.long
def test_the_same_archive_makes_the_same_page() -> None:
    again, before = (re.sub(r"<dt>Made</dt><dd>[^<]*", "", html) for html in (rich(), page_of(rich)))

    assert again == before


def split(*counts: tuple[int, int], **columns: Any) -> Iterator[Message]:
    """Messages of two halves of 1000 s that end at UNTIL: of each half how many, and how many of them are dead."""
    for half, (count, dead) in enumerate(counts):
        for n in range(count):
            end = UNTIL - timedelta(seconds=1000 * (1 - half) + 999 * (n + 0.5) / count)
            kept = {name: value[half] if isinstance(value, tuple) else value for name, value in columns.items()}
            yield message(end, **({"result": "failed", "error_fingerprint": "f"} if n < dead else {}) | kept)


HALVES = Window(UNTIL - timedelta(seconds=2000), UNTIL, mark=UNTIL - timedelta(seconds=1000))
BASELINE = Window.after_baseline(DAY.since, DAY.until, timedelta(days=7))
DEPLOYED = Window(DAY.since, DAY.until, mark=UNTIL - timedelta(hours=5))


def died(hours_ago: float, fingerprint: str) -> Message:
    end = UNTIL - timedelta(hours=hours_ago)
    return message(end, result="failed", error=f"error {fingerprint}", error_fingerprint=fingerprint)


@pytest.mark.usefixtures("undrawn")
def test_only_errors_first_seen_after_the_mark_are_new() -> None:
    archive = [died(20, "old"), died(2, "old"), died(1, "one"), died(1, "two")]

    compared = words(report(archive, DEPLOYED))
    alone = words(report(archive))

    assert compared.count("NEW") == 2
    assert "2 errors are new: they were not seen before the deploy" in compared
    assert "0 before the deploy" in compared
    assert "NEW" not in alone
    assert "What got worse" not in alone


@pytest.mark.long
def test_a_deploy_is_drawn_and_a_baseline_is_not() -> None:
    assert ">deploy<" in page_of(rich)
    assert ">deploy<" not in report([died(1, "one"), died(30, "one")], BASELINE)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("good", "met", "verdict"), [(512, "51.2 %", "not met"), (999, "99.9 %", "met")])
def test_the_tile_of_a_goal_shows_the_share_that_met_it_and_the_target(good: int, met: str, verdict: str) -> None:
    ends = [UNTIL - timedelta(seconds=n + 1) for n in range(1000)]
    archive = [message(end, topic="mail", run_s=1 if n < good else 3) for n, end in enumerate(ends)]

    output = words(report(archive, slos=[Slo.parse("mail=99.9%:2s")]))

    assert f"SLO met by {met} target 99.9 %: mail within 2s {verdict} Total time" in output


@pytest.mark.usefixtures("undrawn")
def test_topics_are_compared_in_one_unit() -> None:
    archive = [*split((2000, 0), (2000, 0), topic="quick"), *split((2, 0), (20, 0), topic="slow")]

    output = words(report(archive, HALVES))

    assert "quick 2/s 2/s" in output
    assert "slow &lt;0.01/s 0.02/s" in output


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("window", "errors", "expected"),
    [
        (DEPLOYED, "old", "No error is new: each was also seen before the deploy."),
        (DEPLOYED, "old new", "1 error is new: it was not seen before the deploy."),
        (BASELINE, "new newer", "2 errors are new: they were not seen in the 7d before this window."),
        (BASELINE, "old", "No error is new: each was also seen in the 7d before this window."),
    ],
)
def test_new_errors_are_counted_and_what_they_are_compared_with_is_named(
    window: Window, errors: str, expected: str
) -> None:
    before = died(20 if window is DEPLOYED else 30, "old")

    output = words(report([before, *(died(1, error) for error in errors.split())], window))

    assert expected in output


@pytest.mark.usefixtures("undrawn")
def test_what_got_worse_is_named_with_both_values_and_the_change() -> None:
    worse = split((500, 2), (500, 50), topic="order", run_s=(1.4, 6.1))
    chance = split((100, 2), (100, 4), topic="few", run_s=0.1)

    output = words(report([*worse, *chance], HALVES))
    same = words(report(list(split((100, 1), (100, 1))), HALVES))

    times = "\N{MULTIPLICATION SIGN}"
    assert f"Slower order p50 1.4s {ARROW} 6.1s {UP} 4.36 {times} More failures" in output
    assert f"More failures order 0.4 % {ARROW} 10 %, 48 more dead {UP} 25 {times} More run time" in output
    assert f"More run time order 16.8 h {ARROW} 73.2 h a day {UP} 4.36 {times} Before and after" in output
    assert "few 6/min 6/min 2 % 4 % \N{ALMOST EQUAL TO} same" in output
    assert "No topic got slower" in same


@pytest.mark.usefixtures("undrawn")
def test_the_costs_of_topics_are_in_hours_with_their_share_and_what_failed() -> None:
    archive = [
        message(UNTIL - timedelta(hours=1), run_s=share * part, topic=topic, result=result, attempts=31)
        for topic, share in (("mail", 9000), ("other", 27_000))
        for result, part in (("success", 0.9), ("failed", 0.1))
    ]

    output = words(report(archive))

    assert "Workers ran 10 h in all, 10 % of it in attempts that did not succeed" in output
    assert "120 attempts were retries" in output
    assert "mail 2.5 h 25 % 10 % 60 2 75m" in output


def weekly(*weeks: tuple[int, int], until: datetime = UNTIL, **columns: Any) -> Iterator[Message]:
    """Messages of whole weeks: of each how many, and how many of them are dead."""
    for ago, (count, dead) in enumerate(reversed(weeks)):
        for n in range(count):
            end = until - timedelta(days=7 * ago + 7 * (n + 0.5) / count)
            yield message(end, **({"result": "failed"} if n < dead else {}) | columns)


@pytest.mark.usefixtures("undrawn")
def test_weeks_mark_what_is_noticeably_above_the_week_before_and_hardly_chance() -> None:
    window = Window(UNTIL - timedelta(days=28), UNTIL)
    sure, chance = weekly((2000, 20), (2000, 60), topic="sure", run_s=3.6), weekly((100, 1), (100, 2), topic="chance")

    output = words(report([*sure, *chance, message(UNTIL - timedelta(days=28), topic="first")], window))

    assert "topic messages failure rate total time, p99 run time, hours retries" in output
    assert f"sure {DASH} {DASH} 2 k 2 k {DASH} {DASH} 1 % {UP} 3 % {DASH} {DASH} 3.6s 3.6s {DASH} {DASH} 2 2" in output
    assert f"chance {DASH} {DASH} 100 100 {DASH} {DASH} 1 % 2 % {DASH}" in output


@pytest.mark.usefixtures("undrawn")
def test_weeks_are_named_by_their_last_day_and_left_out_below_two() -> None:
    monday = datetime(2026, 11, 23, tzinfo=UTC)
    archive = list(weekly(*[(3, 0)] * 4, until=monday))

    month, week = (words(report(archive, Window(monday - timedelta(days=d), monday))) for d in (28, 7))

    assert "1 Nov 8 Nov 15 Nov 22 Nov" in month
    assert "By week" not in week


@pytest.mark.usefixtures("undrawn")
def test_a_week_below_the_target_of_an_slo_is_marked() -> None:
    archive = list(weekly((500, 0), (1000, 17), topic="order"))

    output = words(report(archive, Window(UNTIL - timedelta(days=14), UNTIL), [Slo.parse("order=99.9%:2s")]))

    assert f"order within 2s 99.9 % 100 % {WARNING} 98.3 %" in output


@pytest.mark.usefixtures("undrawn")
def test_a_shortened_window_shows_the_requested_one_and_no_empty_parts() -> None:
    output = words(report([message(UNTIL - timedelta(minutes=m)) for m in range(1, 20)]))

    assert [part for part in ("Service level", "Gini", "What got worse") if part in output] == []
    assert "Asked for 2026-11-21 10:00 to 2026-11-22 10:00 UTC; the rest of it is empty" in output


@pytest.mark.usefixtures("undrawn")
def test_a_chart_has_its_numbers_as_a_table() -> None:
    window = Window(UNTIL - timedelta(minutes=1), UNTIL - timedelta(seconds=57))

    html = report([message(window.since, run_s=2.5), message(window.until - timedelta(seconds=0.5), run_s=0.3)], window)

    rows = re.findall(r"<th scope=\"row\">(2026[^<]*)</th>\s*" + r"<td class=\"n\">([^<]*)</td>\s*" * 3, html)
    assert rows == [
        ("2026-11-22 09:59", "2.5s", "2.5s", "2.5s"),
        ("2026-11-22 09:59:01", DASH, DASH, DASH),
        ("2026-11-22 09:59:02", "300ms", "300ms", "300ms"),
    ]


WIDE, NARROW = SIZES


def drawn(chart: Chart, layer: int = 0) -> list[tuple[float, float, Any]]:
    """The points of one layer.

    Each has seconds after the start of the window, the value, and the series or the part of the line.
    """
    begin = chart.window.starts()[0].timestamp() * 1000
    values = chart.spec(WIDE)["layer"][layer]["data"]["values"]
    return [((v["at"] - begin) / 1000, v["value"], v.get("series", v.get("part"))) for v in values]


def test_stacked_areas_are_steps_that_end_with_the_window() -> None:
    window = Window(UNTIL - timedelta(seconds=2), UNTIL)
    low, high = (Series(name, name, values, formatting.short) for name, values in (("c1", [2, 4]), ("c2", [2, 0])))
    chart = Chart("Title", "Text", window, stacked=[low, high])

    areas = chart.spec(WIDE)["layer"][0]

    assert drawn(chart) == [(0, 2, "0"), (1, 4, "0"), (2, 4, "0"), (0, 2, "1"), (1, 0, "1"), (2, 0, "1")]
    assert areas["encoding"]["y"]["stack"] == "zero"
    assert areas["encoding"]["color"]["scale"]["range"] == ["var(--c1)", "var(--c2)"]


def test_a_line_is_interrupted_where_nothing_was_measured() -> None:
    window = Window(UNTIL - timedelta(seconds=4), UNTIL)
    chart = Chart("Title", "Text", window, lines=[Series("p50", "o1", [1, 1, None, 2], formatting.short)])

    html = "".join(chart.drawings())

    assert drawn(chart) == [(0.5, 1, 0), (1.5, 1, 0), (3.5, 2, 1)]
    # Two lines, and the second is a dot with round ends.
    lines = re.findall('<path d="([^"]*)" stroke="var\\(--o1\\)"[^>]*stroke-linecap="round"', html)
    assert len(lines) == 2 * len(SIZES)
    assert [line.endswith("Z") for line in lines] == [False, True] * len(SIZES)


def test_a_phone_gets_a_drawing_of_fewer_points_with_the_same_area_and_the_worst_values() -> None:
    window = Window(UNTIL - timedelta(seconds=240), UNTIL)
    values = [float(i % 4) for i in range(240)]
    series = Series("mail", "c1", values, formatting.short)

    narrow = Chart("Title", "Text", window, stacked=[series], lines=[series]).spec(NARROW)["layer"]

    assert {point["value"] for point in narrow[0]["data"]["values"]} == {1.5}
    assert {point["value"] for point in narrow[1]["data"]["values"]} == {3.0}
    assert len(narrow[1]["data"]["values"]) == 60


def test_a_logarithmic_axis_has_no_zero() -> None:
    window = Window(UNTIL - timedelta(seconds=2), UNTIL)
    series = Series("p50", "o1", [0.0, 0.25], formatting.duration)
    chart = Chart("Title", "Text", window, lines=[series], log=True)

    assert [value for _, value, _ in drawn(chart)] == [0.25, 0.25]


def test_no_text_of_a_message_gets_into_a_drawing() -> None:
    window = Window(UNTIL - timedelta(seconds=2), UNTIL)
    series = Series(HOSTILE, "c1", [1, 2], formatting.short)

    spec = json.dumps(Chart("Title", "Text", window, stacked=[series], lines=[series]).spec(WIDE))

    assert "evil" not in spec


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (formatting.short(0), "0"),
        (formatting.short(0.254), "0.25"),
        (formatting.short(999.6), "1 k"),
        (formatting.short(12_345), "12.3 k"),
        (formatting.short(7_207_862), "7.21 M"),
        (formatting.duration(None), "\N{EN DASH}"),
        (formatting.duration(1020), "17m"),
        (formatting.share(None), "\N{EN DASH}"),
        (formatting.share(0), "0 %"),
        (formatting.share(0.00001), "<0.01 %"),
        (formatting.share(0.99999), ">99.99 %"),
        (formatting.share(0.9993), "99.93 %"),
        (formatting.share(0.311), "31.1 %"),
        (formatting.share(1), "100 %"),
        (formatting.count(1_234_567), "1,234,567"),
        (formatting.hours(0), "0 h"),
        (formatting.hours(2), "<0.01 h"),
        (formatting.hours(9000), "2.5 h"),
        (formatting.hours(3600 * 4120.4), "4,120 h"),
    ],
)
def test_numbers_are_short_and_have_their_unit(written: str, expected: str) -> None:
    assert written.replace(formatting.GAP, " ") == expected


def test_the_axis_of_a_day_has_times_and_one_of_latencies_has_units() -> None:
    html = page_of(rich)

    labels = re.findall(r"<text [^>]*>([^<]*)</text>", html)

    assert {"12:00", "18:00", "22 Nov", "100ms", "1s", "10s", "deploy"} <= set(labels)


def test_a_name_is_escaped_and_may_be_broken_after_its_separators() -> None:
    assert formatting.named("a.b<") == '<span class="name" title="a.b&lt;">a.<wbr>b&lt;</span>'
    assert HOSTILE not in formatting.named(HOSTILE)
