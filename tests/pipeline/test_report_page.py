"""The page, as text."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser

import pytest

from pyspark_pgrouse.report.findings import BurnRate, Percentiles, PeriodTotals, SloStatus, TopicChange
from pyspark_pgrouse.report.html import formatting
from pyspark_pgrouse.report.html.chart import Chart, Series
from pyspark_pgrouse.report.html.comparison import comparison
from pyspark_pgrouse.report.html.markup import tag, text
from pyspark_pgrouse.report.html.page import page
from pyspark_pgrouse.report.html.scale import Linear, Log, time_ticks
from pyspark_pgrouse.report.html.tiles import failure_trend, tiles, trend
from pyspark_pgrouse.report.slo import Slo
from pyspark_pgrouse.report.window import Window
from tests.pipeline.findings import DAY, HOSTILE, UNTIL, crowded, hostile, nothing, rich

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


def test_the_page_has_window_source_rows_creation_time_and_time_zone() -> None:
    output = words(page(rich()))

    assert "Window 2026-11-21 10:00 to 2026-11-22 10:00 UTC (24h)" in output
    assert "Source lake s3a://warehouse/queue" in output
    assert "archived messages" in output
    assert "Made 2026-11-22 10:02 UTC" in output
    assert "All times are UTC" in output


def test_the_page_has_every_section_and_every_element_is_closed() -> None:
    html = page(rich())

    outline = Outline(html)

    parts = [value for key, value in outline.attributes if key == "id" and not re.search("-(title|text)$", value)]
    assert parts == ["slo", "changes", "throughput", "latency", "failures", "capacity", "retries", "channels"]


def test_a_report_without_data_says_so() -> None:
    output = words(page(nothing()))

    assert "No message ended from 2026-11-21 10:00 to 2026-11-22 10:00 UTC" in output
    assert "Throughput" not in output


def test_hostile_text_is_shown_and_never_executed() -> None:
    html = page(hostile())

    outline = Outline(html)

    assert outline.names.count("script") == 1
    assert "img" not in outline.names
    assert [key for key, _ in outline.attributes if key.startswith("on")] == []
    assert "<title>pgrouse report" in html
    assert "&lt;/title&gt;&lt;script&gt;fetch(" in html
    assert "$policy" in words(html)
    assert "\u202e" not in html
    assert "\x1b" not in html


@pytest.mark.parametrize("findings", [rich(), hostile(), nothing()], ids=["rich", "hostile", "nothing"])
def test_the_page_requests_nothing(findings: object) -> None:
    html = page(findings)  # type: ignore[arg-type]

    outline = Outline(html)

    assert "link" not in outline.names
    assert [key for key, _ in outline.attributes if key in ("src", "href", "srcset", "data", "action")] == []
    assert "url(" not in re.sub(r"<(?!style)[^>]*>[^<]*", "", html)
    assert "default-src 'none'" in html


def test_a_thousand_topics_and_many_messages_make_a_page_below_a_megabyte() -> None:
    html = page(crowded())

    assert len(html.encode()) < 1_000_000
    assert "The first 20 of 1,000; all are in the table latency_by_topic" in words(html)


def test_the_same_findings_make_the_same_page() -> None:
    assert page(rich()) == page(rich())


def test_only_errors_first_seen_after_the_mark_are_new() -> None:
    compared = words(page(rich()))
    alone = words(page(replace(rich(), window=Window(DAY.since, DAY.until))))

    assert compared.count("NEW") == 2
    assert "2 errors are new: never seen before the mark" in compared
    assert "NEW" not in alone
    assert "What changed" not in alone


def test_a_deploy_is_drawn_and_a_baseline_is_not() -> None:
    before = Window.after_baseline(DAY.since, DAY.until, timedelta(days=1))

    assert ">deploy<" in page(rich())
    assert ">deploy<" not in page(rich(window=before))


def service(good: int) -> SloStatus:
    return SloStatus(Slo.parse("mail=99.9%:2s"), (BurnRate(24.0, 1000, good, (1000 - good) / 1.0),), ())


@pytest.mark.parametrize(("good", "met"), [(512, "51.2 %"), (999, "99.9 %"), (1000, "100 %")])
def test_the_tile_of_a_goal_shows_the_share_that_met_it_and_the_target(good: int, met: str) -> None:
    output = words(str(tiles(replace(rich(), slo_statuses=(service(good),)))))

    assert f"SLO met by {met} wanted 99.9 %, mail=99.9%:2s" in output
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


@pytest.mark.parametrize(
    ("fresh", "expected"),
    [
        (0, "No error is new: each was seen before the mark."),
        (1, "1 error is new: never seen before the mark."),
        (2, "2 errors are new: never seen before the mark."),
    ],
)
def test_a_new_error_is_marked(fresh: int, expected: str) -> None:
    assert expected in words(str(comparison(replace(rich(), new_error_groups=fresh))))


def test_goals_channels_and_comparison_are_omitted_when_empty() -> None:
    bare = replace(rich(window=Window(DAY.since, DAY.until)), slo_statuses=(), skews=())

    output = words(page(bare))

    assert "Service level" not in output
    assert "Gini" not in output
    assert "What changed" not in output


def test_a_shortened_window_shows_the_requested_one() -> None:
    shorter = Window(UNTIL - timedelta(minutes=20), UNTIL)

    output = words(page(replace(rich(window=shorter), asked=DAY)))

    assert "Asked for 2026-11-21 10:00 to 2026-11-22 10:00 UTC; the rest of it is empty" in output


def test_a_chart_has_its_numbers_as_a_table() -> None:
    window = Window(UNTIL - timedelta(minutes=1), UNTIL - timedelta(seconds=57))
    series = Series("mail", "c1", [1.0, None, 2500.0], formatting.short)

    html = Chart("c", "Title", "Text", window, lines=[series]).render()

    rows = re.findall(r'<th scope="row">([^<]*)</th><td class="n">([^<]*)</td>', html)
    assert [(at, said.replace(formatting.GAP, " ")) for at, said in rows] == [
        ("2026-11-22 09:59", "1"),
        ("2026-11-22 09:59:01", "\N{EN DASH}"),
        ("2026-11-22 09:59:02", "2.5 k"),
    ]


def test_stacked_areas_add_up_to_their_sum() -> None:
    window = Window(UNTIL - timedelta(seconds=2), UNTIL)
    low, high = (Series(name, name, values, formatting.short) for name, values in (("c1", [2, 4]), ("c2", [2, 0])))

    html = Chart("c", "Title", "Text", window, stacked=[low, high]).render()

    # The axis ends at 4, which is 240 units high.
    assert 'd="M0 120H500V0H1000H1000V240H0Z" class="area c1"' in html
    assert 'd="M0 0H1000H1000V0H500V120H0Z" class="area c2"' in html


def test_a_line_is_interrupted_where_nothing_was_measured() -> None:
    window = Window(UNTIL - timedelta(seconds=4), UNTIL)
    series = Series("p50", "o1", [1, 1, None, 2], formatting.short)

    html = Chart("c", "Title", "Text", window, lines=[series]).render()

    assert 'd="M125 120L375 120M750 0h250" class="line o1"' in html


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
    ],
)
def test_numbers_are_short_and_have_their_unit(written: str, expected: str) -> None:
    assert written.replace(formatting.GAP, " ") == expected


def test_axes_have_few_round_ticks() -> None:
    assert Linear.over(143).ticks() == [0, 50, 100, 150]
    assert Linear.over(0).top > 0
    assert Linear.over(2, whole=True).ticks() == [0, 1, 2]
    assert Log.over(0.02, 4).ticks() == pytest.approx([0.01, 0.1, 1, 10])
    assert Log.over(1, 10).ticks() == pytest.approx([1, 2, 5, 10])
    assert [said.replace(formatting.GAP, " ") for _, said in time_ticks(UNTIL - timedelta(hours=24), UNTIL)] == [
        "12:00",
        "15:00",
        "18:00",
        "21:00",
        "22 Nov",
        "03:00",
        "06:00",
        "09:00",
    ]


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
