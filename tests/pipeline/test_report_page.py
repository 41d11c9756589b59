"""The page, as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest

from pyspark_pgrouse.report.findings import (
    BurnRate,
    Findings,
    Percentiles,
    PeriodTotals,
    SloStatus,
    TopicChange,
    TopicCost,
    WeekTotals,
)
from pyspark_pgrouse.report.html import formatting
from pyspark_pgrouse.report.html.chart import SIZES, Chart, Series
from pyspark_pgrouse.report.html.comparison import comparison
from pyspark_pgrouse.report.html.cost import cost
from pyspark_pgrouse.report.html.markup import tag, text
from pyspark_pgrouse.report.html.page import page
from pyspark_pgrouse.report.html.sparkline import sparkline
from pyspark_pgrouse.report.html.tiles import tiles
from pyspark_pgrouse.report.html.trend import failure_trend, trend
from pyspark_pgrouse.report.html.weeks import weeks
from pyspark_pgrouse.report.slo import Slo
from pyspark_pgrouse.report.window import Window
from tests.pipeline.findings import DAY, HOSTILE, UNTIL, crowded, hostile, nothing, page_of, rich

PERCENTILES = (Percentiles(0.02, 0.3, 1.4),)
VOID = {"meta", "br", "wbr", "img", "link", "input"}


class Outline(HTMLParser):
    """The elements of a page; reports those that are not closed where they were opened."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

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
    assert "archived messages" in output
    assert "Made 2026-11-22 10:02 UTC" in output
    assert "All times are UTC" in output


def test_the_page_has_every_section_and_every_element_is_closed() -> None:
    html = page_of(rich)

    outline = Outline(html)

    parts = [value for key, value in outline.attributes if key == "id"]
    assert parts == [
        *("changes", "slo", "weeks", "cost"),
        *("throughput", "latency", "failures", "capacity", "retries", "channels"),
    ]


def test_a_report_without_data_says_so() -> None:
    output = words(page_of(nothing))

    assert "No message ended from 2026-11-21 10:00 to 2026-11-22 10:00 UTC" in output
    assert "Throughput" not in output


@pytest.mark.long
def test_hostile_text_is_shown_and_never_executed() -> None:
    html = page_of(hostile)

    outline = Outline(html)

    assert outline.names.count("script") == 1
    assert "img" not in outline.names
    assert [key for key, _ in outline.attributes if key.startswith("on")] == []
    assert "<title>pgrouse report" in html
    assert "&lt;/title&gt;&lt;script&gt;fetch(" in html
    assert "$policy" in words(html)
    assert "\u202e" not in html
    assert "\x1b" not in html


@pytest.mark.parametrize("findings", [rich, hostile, nothing])
def test_the_page_requests_nothing(findings: Callable[[], Findings]) -> None:
    html = page_of(findings)

    outline = Outline(html)

    assert "link" not in outline.names
    assert [key for key, _ in outline.attributes if key in ("src", "href", "srcset", "data", "action")] == []
    assert "url(" not in re.sub(r"<(?!style)[^>]*>[^<]*", "", html)
    assert "default-src 'none'" in html


@pytest.mark.long
def test_a_thousand_topics_and_many_messages_make_a_page_below_a_megabyte() -> None:
    html = page_of(crowded)

    assert len(html.encode()) < 1_000_000
    assert "The first 20 of 1,000; all are in the table latency_by_topic" in words(html)


@pytest.mark.long
def test_the_same_findings_make_the_same_page() -> None:
    assert page(rich()) == page_of(rich)


def test_only_errors_first_seen_after_the_mark_are_new() -> None:
    compared = words(page_of(rich))
    alone = words(page(replace(rich(), window=Window(DAY.since, DAY.until))))

    assert compared.count("NEW") == 2
    assert "2 errors are new: they were not seen before the deploy" in compared
    assert "0 before the deploy" in compared
    assert "NEW" not in alone
    assert "What got worse" not in alone


@pytest.mark.long
def test_a_deploy_is_drawn_and_a_baseline_is_not() -> None:
    before = Window.after_baseline(DAY.since, DAY.until, timedelta(days=1))

    assert ">deploy<" in page_of(rich)
    assert ">deploy<" not in page(rich(window=before))


def service(good: int) -> SloStatus:
    return SloStatus(Slo.parse("mail=99.9%:2s"), (BurnRate(24.0, 1000, good, (1000 - good) / 1.0),), ())


@pytest.mark.parametrize(("good", "met"), [(512, "51.2 %"), (999, "99.9 %"), (1000, "100 %")])
def test_the_tile_of_a_goal_shows_the_share_that_met_it_and_the_target(good: int, met: str) -> None:
    output = words(str(tiles(replace(rich(), slo_statuses=(service(good),)))))

    assert f"SLO met by {met} target 99.9 %: mail within 2s" in output
    assert "SLO missed" not in output


def test_the_tile_of_a_missed_goal_says_so_in_text() -> None:
    missed, met = (str(tiles(replace(rich(), slo_statuses=(service(good),)))) for good in (512, 999))

    assert "not met" in words(missed)
    assert "not met" not in words(met)


def test_the_rates_of_a_table_have_one_unit() -> None:
    assert formatting.rates([6.93, 2, 49.7 / 60, 0.0001, 0]) == ["6.93/s", "2/s", "0.83/s", "<0.01/s", "0/s"]
    assert formatting.rates([0.5, 1 / 3600]) == ["30/min", "0.02/min"]
    assert formatting.rates([]) == []


def test_topics_are_compared_in_one_unit() -> None:
    findings = rich()
    quick, slow = (
        TopicChange(PeriodTotals(n, 0, *PERCENTILES), PeriodTotals(n, 0, *PERCENTILES)) for n in (3_000_000, 300)
    )
    output = words(str(comparison(replace(findings, changes={"quick": quick, "slow": slow}))))

    assert "slow &lt;0.01/s 0.02/s" in output


BASELINE = Window.after_baseline(DAY.since, DAY.until, timedelta(days=7))


@pytest.mark.parametrize(
    ("window", "fresh", "expected"),
    [
        (DAY, 0, "No error is new: each was also seen before the deploy."),
        (DAY, 1, "1 error is new: it was not seen before the deploy."),
        (BASELINE, 2, "2 errors are new: they were not seen in the 7d before this window."),
        (BASELINE, 0, "No error is new: each was also seen in the 7d before this window."),
    ],
)
def test_new_errors_are_counted_and_what_they_are_compared_with_is_named(
    window: Window, fresh: int, expected: str
) -> None:
    assert expected in words(str(comparison(replace(rich(window=window), new_error_groups=fresh))))


def test_without_an_error_none_is_called_new_or_not_new() -> None:
    assert "No error is new" not in words(str(comparison(replace(rich(), new_error_groups=0, error_group_count=0))))


def test_what_got_worse_is_named_with_both_values_and_the_change() -> None:
    output = words(str(comparison(rich())))

    up = "\N{BLACK UP-POINTING TRIANGLE}"
    assert f"Slower order.placed p99 1.4s \N{RIGHTWARDS ARROW} 6.1s {up} 4.36" in output
    assert f"More failures order.placed 0.04 % \N{RIGHTWARDS ARROW} 0.61 %, 1,779 more dead {up} 15.8" in output
    assert f"More run time order.placed 216 h \N{RIGHTWARDS ARROW} 504 h a day {up} 2.33" in output
    assert "No topic got slower" in words(str(comparison(replace(rich(), slower={}))))


def test_the_costs_of_topics_are_in_hours_with_their_share_and_what_failed() -> None:
    whole, topic = TopicCost(5000, 70, 36_000.0, 3600.0), TopicCost(2000, 60, 9000.0, 900.0)

    output = words(str(cost(replace(rich(), cost=whole, costs={"mail": topic}))))

    assert "Workers ran 10 h in all, 10 % of it in attempts that did not succeed" in output
    assert "70 attempts were retries" in output
    assert "mail 2.5 h 25 % 10 % 60 2 k 4.5s" in output


def test_weeks_mark_what_is_noticeably_above_the_week_before_and_hardly_chance() -> None:
    def totals(ended: int, dead: int) -> WeekTotals:
        return WeekTotals(ended, 0, dead, 7, 3600.0, 1.0)

    sure = (None, None, totals(100_000, 1000), totals(100_000, 2000))
    chance = (None, None, totals(100, 1), totals(100, 2))

    output = words(str(weeks(replace(rich(), week_totals={"": sure, "mail": chance}))))

    dash = "\N{EN DASH}"
    assert "topic messages failure rate total time, p99 run time, hours retries" in output
    assert f"all topics {dash} {dash} 100 k 100 k {dash} {dash} 1 % \N{BLACK UP-POINTING TRIANGLE} 2 % {dash}" in output
    assert f"mail {dash} {dash} 100 100 {dash} {dash} 1 % 2 % {dash}" in output


def test_weeks_are_named_by_their_last_day_and_left_out_below_two() -> None:
    monday = datetime(2026, 11, 23, tzinfo=UTC)
    starts = tuple(monday - timedelta(days=7) * n for n in (4, 3, 2, 1))

    output = words(str(weeks(replace(rich(), weeks=starts))))

    assert "1 Nov 8 Nov 15 Nov 22 Nov" in output
    assert weeks(replace(rich(), weeks=starts[:1])) is None


def test_a_week_below_the_target_of_an_slo_is_marked() -> None:
    output = words(str(weeks(rich())))

    assert (
        "order.placed within 2s 99.9 % 99.94 % 99.93 % 99.91 % \N{WARNING SIGN}\N{VARIATION SELECTOR-15} 98.3 %"
        in output
    )


def test_goals_channels_and_comparison_are_omitted_when_empty() -> None:
    bare = replace(rich(window=Window(DAY.since, DAY.until)), slo_statuses=(), skews=())

    output = words(page(bare))

    assert "Service level" not in output
    assert "Gini" not in output
    assert "What got worse" not in output


def test_a_shortened_window_shows_the_requested_one() -> None:
    shorter = Window(UNTIL - timedelta(minutes=20), UNTIL)

    output = words(page(replace(rich(window=shorter), asked=DAY)))

    assert "Asked for 2026-11-21 10:00 to 2026-11-22 10:00 UTC; the rest of it is empty" in output


def test_a_chart_has_its_numbers_as_a_table() -> None:
    window = Window(UNTIL - timedelta(minutes=1), UNTIL - timedelta(seconds=57))
    series = Series("mail", "c1", [1.0, None, 2500.0], formatting.short)

    html = Chart("Title", "Text", window, lines=[series]).render()

    rows = re.findall(r'<th scope="row">([^<]*)</th><td class="n">([^<]*)</td>', html)
    assert [(at, said.replace(formatting.GAP, " ")) for at, said in rows] == [
        ("2026-11-22 09:59", "1"),
        ("2026-11-22 09:59:01", "\N{EN DASH}"),
        ("2026-11-22 09:59:02", "2.5 k"),
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

    html = chart.render()

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


def test_an_empty_sparkline_is_drawn() -> None:
    assert "<svg" in sparkline((None, None), "nothing")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (formatting.short(0), "0"),
        (formatting.short(0.254), "0.25"),
        (formatting.short(999.6), "1 k"),
        (formatting.short(12_345), "12.3 k"),
        (formatting.short(7_207_862), "7.21 M"),
        (formatting.rate(12_345), "12.3 k/s"),
        (formatting.rate(0.5), "30/min"),
        (formatting.rate(0), "0/s"),
        (formatting.rate(1 / 7200), "12/d"),
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


@pytest.mark.parametrize(("largest", "unit"), [(40, "second"), (0.5, "minute"), (1 / 3000, "hour"), (0, "day")])
def test_the_unit_of_rates_is_the_largest_in_which_there_is_one(largest: float, unit: str) -> None:
    assert formatting.rate_unit(largest)[0] == unit


def test_the_axis_of_a_day_has_times_and_one_of_latencies_has_units() -> None:
    html = page_of(rich)

    labels = re.findall(r"<text [^>]*>([^<]*)</text>", html)

    assert {"12:00", "18:00", "22 Nov", "100ms", "1s", "10s", "deploy"} <= set(labels)


def test_a_change_has_a_sign_and_not_only_a_colour() -> None:
    found = [
        re.sub("<[^>]*>", "", trend(*pair) or "").replace(formatting.GAP, " ") for pair in ((1, 3), (1, 1.5), (2, 1))
    ]

    assert found == [
        "\N{BLACK UP-POINTING TRIANGLE} 3 \N{MULTIPLICATION SIGN}",
        "\N{BLACK UP-POINTING TRIANGLE} 50%",
        "\N{BLACK DOWN-POINTING TRIANGLE} 50%",
    ]
    assert "same" in str(trend(1, 1.05))
    assert trend(0, 0) is None
    assert trend(None, 1) is None


def test_failures_that_may_be_random_are_not_called_a_change() -> None:
    few = TopicChange(PeriodTotals(100, 2), PeriodTotals(100, 4))
    many = TopicChange(PeriodTotals(100_000, 2000), PeriodTotals(100_000, 4000))

    assert "same" in str(failure_trend(few))
    assert "100%" in str(failure_trend(many))
    assert failure_trend(TopicChange(PeriodTotals(100, 0), PeriodTotals(100, 0))) is None


def test_text_is_escaped_and_markup_is_not() -> None:
    assert text("<b> & \"'") == "&lt;b&gt; &amp; &quot;&#x27;"
    assert tag("p", tag("b", "<"), title='"') == '<p title="&quot;"><b>&lt;</b></p>'
    assert HOSTILE not in tag("p", HOSTILE, title=HOSTILE)
