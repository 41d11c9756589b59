"""The tables of a report, from archives small enough to be counted by hand."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_pgrouse.report.findings import burn_rate
from pyspark_pgrouse.report.slo import Slo
from pyspark_pgrouse.report.source import COLUMNS
from pyspark_pgrouse.report.tables import Tables
from pyspark_pgrouse.report.window import Window

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
HOUR = Window(NOON, NOON + timedelta(hours=1))
Row = tuple[Any, ...]


class Measured:
    """The tables of some messages. `measured("SELECT …")` returns rows; times are seconds after noon."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def __call__(self, query: str) -> list[Row]:
        rows = self._tables.rows(query)
        return [tuple(value for value in row.values()) for row in rows]

    def by(self, query: str) -> dict[Any, Row]:
        """Return rows by their first column."""
        return {row[0]: row[1:] for row in self(query)}

    def burn_rate(self, slo: Slo, window: Window, hours: float) -> Row:
        found = burn_rate(self._tables, slo, window, hours)
        return found["ended"], found["good"], found["rate"]


Measure = Callable[..., Measured]
AT = "(epoch_us(time) - epoch_us(TIMESTAMPTZ '2026-11-22 12:00:00+00')) / 1e6"


def at(seconds: float) -> datetime:
    """The given number of seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def message(end: float, **columns: Any) -> dict[str, Any]:
    """A message of topic t that was due at noon, claimed at once, and ended the given number of seconds after noon."""
    defaults = {"id": 1, "topic": "t", "created_at": at(0), "available_at": at(0), "attempts": 1, "locked_at": at(0)}
    return defaults | {"result": "success", "handled_by": "w", "archived_at": at(end)} | columns


@pytest.fixture
def measure(tmp_path: Path) -> Iterator[Measure]:
    """`measure(message(…), …)` makes the tables, by default for the hour after noon."""
    with ExitStack() as opened:

        def make(*messages: dict[str, Any], window: Window = HOUR, slos: tuple[Slo, ...] = ()) -> Measured:
            folder = tmp_path / f"tables-{random.getrandbits(64):x}"
            folder.mkdir()
            tables = opened.enter_context(Tables.open(folder))
            tables.load(pa.Table.from_pylist(list(messages), COLUMNS).to_reader(), window)
            tables.make(window, slos, lambda _: None)
            return Measured(tables)

        yield make


def test_no_bar_is_printed_while_a_statement_takes_long(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Tables.open(tmp_path) as tables:
        tables.rows("SET progress_bar_time = 1")
        tables.rows("SELECT count(*) FROM range(30_000_000) WHERE hash(range) % 7 = 1")

    assert capfd.readouterr().out == ""


def test_an_ended_message_is_measured_to_the_microsecond(measure: Measure) -> None:
    made = measure(message(2, created_at=at(-9), available_at=at(-0.5), locked_at=at(0.000001)))

    assert made("SELECT wait_us, run_us, total_us, is_dead, counts FROM ended") == [
        (500_001, 1_999_999, 2_500_000, False, True)
    ]


def test_the_total_of_a_retried_message_begins_at_its_creation(measure: Measure) -> None:
    history = '[{"attempt": 1}]'
    made = measure(
        message(20, created_at=at(-5), available_at=at(10), attempts=2, locked_at=at(12)),
        message(21, created_at=at(-5), available_at=at(10), history=history, locked_at=at(12)),
        message(22, created_at=at(-5), available_at=at(-60), locked_at=None, attempts=0, result="expired"),
    )

    assert made("SELECT wait_us / 1e6, run_us / 1e6, total_us / 1e6 FROM ended ORDER BY archived_us") == [
        (2, 8, 25),
        (2, 9, 26),
        (None, None, 27),
    ]


def test_a_message_belongs_to_the_time_at_which_it_ended(measure: Measure) -> None:
    window = Window.after_baseline(at(100), at(200), timedelta(seconds=50))
    made = measure(*(message(end) for end in (49.9, 50, 99.9, 100, 199.9, 200)), window=window)

    assert made("SELECT is_shown, is_after FROM ended ORDER BY archived_us") == [
        (False, False),
        (False, False),
        (True, True),
        (True, True),
    ]


def test_clocks_that_disagree_and_times_without_end_break_nothing(measure: Measure) -> None:
    never = datetime.max.replace(tzinfo=UTC)
    made = measure(
        message(1, locked_at=at(2)),
        message(2, available_at=never, locked_at=None, result="cancelled"),
        message(3, history=json.dumps([{"started": "294247-01-10", "ended": "infinity"}, 7, None])),
    )

    assert made("SELECT run_us, total_us FROM ended WHERE id = 1 ORDER BY archived_us") == [
        (0, 1_000_000),
        (None, 2_000_000),
        (3_000_000, 3_000_000),
    ]


def test_throughput_counts_by_topic_and_bucket_and_failures_are_its_sum(measure: Measure) -> None:
    made = measure(
        message(1),
        message(59.9, result="failed"),
        message(60, result="cancelled"),
        message(61, topic="u", result="cancelled"),
    )

    counts = "ended, success, rejected, failed, lock_expired, expired, cancelled"
    # A point of a chart of an hour is 15 s wide; tables by time have no longer steps.
    assert made(f"SELECT topic, {AT}, {counts} FROM throughput ORDER BY topic, time") == [
        ("t", 0, 1, 1, 0, 0, 0, 0, 0),
        ("t", 45, 1, 0, 0, 1, 0, 0, 0),
        ("t", 60, 1, 0, 0, 0, 0, 0, 1),
        ("u", 60, 1, 0, 0, 0, 0, 0, 1),
    ]
    assert made("SELECT topic, ended, dead, failure_rate FROM failures ORDER BY topic") == [
        ("t", 3, 1, 0.5),
        ("u", 1, 0, None),
    ]


def test_latency_has_percentiles_by_bucket_and_topic_of_all_topics_and_of_the_whole_window(measure: Measure) -> None:
    # Total times of 1 to 100 s in topic t, and 200 s in u; a cancelled one does not count. A bucket is a minute.
    window = Window(NOON, NOON + timedelta(hours=5))
    made = measure(
        *(message(end) for end in range(1, 101)),
        message(200, topic="u"),
        message(3000, result="cancelled"),
        window=window,
    )

    rows = made(f"SELECT {AT} / 60, topic, messages, total_p50_s, total_p95_s, total_p99_s FROM latency")
    found = {row[:2]: row[2:] for row in rows}
    assert found[0, "t"] == (59, 30, 57, 59)
    assert found[1, "t"] == (41, 80, 98, 100)
    assert found[3, None] == found[3, "u"] == (1, 200, 200, 200)
    assert found[None, None] == (101, 51, 96, 100)
    by_topic = "SELECT topic, total_p50_s, wait_p99_s, run_p95_s FROM latency_by_topic ORDER BY topic"
    assert made(by_topic) == [("t", 50, 0, 95), ("u", 200, 0, 200)]


def test_percentiles_are_those_of_sql_rounded_to_three_digits(measure: Measure) -> None:
    dice = random.Random(3)
    times = sorted(round(dice.lognormvariate(-2, 3), 6) for _ in range(2000))
    made = measure(*(message(1800, created_at=at(1800 - t), available_at=at(1800 - t)) for t in times))

    (found,) = made("SELECT total_p50_s, total_p95_s, total_p99_s FROM latency_by_topic")

    exact = [percentile(times, percent) for percent in (50, 95, 99)]
    assert [rounded(value) for value in found] == list(found)
    assert list(found) == pytest.approx(exact, rel=0.00501)


def test_retries_count_messages_by_their_attempts(measure: Measure) -> None:
    made = measure(
        message(1),
        message(2),
        message(3, attempts=3, result="failed"),
        message(4, attempts=0, locked_at=None, result="expired"),
    )

    assert made("SELECT topic, attempts, messages, dead FROM retries ORDER BY attempts") == [
        ("t", 0, 1, 1),
        ("t", 1, 2, 0),
        ("t", 3, 1, 1),
    ]


def test_fingerprints_have_the_newest_error_as_a_sample_and_mark_new_ones(measure: Measure) -> None:
    window = Window(at(0), at(3600), mark=at(1800))
    old = {"result": "failed", "error_fingerprint": "old"}
    made = measure(
        message(10, **old, id=1, error="first"),
        message(2000, **old, id=2, error="last"),
        message(1900, **old, id=3, error="between"),
        message(2100, id=4, result="failed", error_fingerprint="new", error="x" * 9000),
        message(2200, id=5, result="expired"),
        message(2300, id=6),
        window=window,
    )

    counts = made.by("SELECT fingerprint, messages, before, after FROM fingerprints")
    samples = made.by("SELECT fingerprint, sample_id, sample_result, left(sample_error, 5) FROM fingerprints")

    assert counts == {"old": (3, 1, 2), "new": (1, 0, 1), "expired": (1, 0, 1)}
    assert samples == {
        "old": (2, "failed", "last"),
        "new": (4, "failed", "xxxxx"),
        "expired": (5, "expired", None),
    }
    assert made("SELECT max(length(sample_error)) FROM fingerprints") == [(2000,)]
    assert made("SELECT messages FROM fingerprint_trend WHERE fingerprint = 'old' ORDER BY time") == [(1,), (1,), (1,)]


@pytest.mark.long
def test_an_error_only_in_the_baseline_is_not_shown(measure: Measure) -> None:
    window = Window.after_baseline(at(100), at(200), timedelta(seconds=100))
    failed = {"result": "failed", "error_fingerprint": "f"}

    only_before = measure(message(50, **failed), window=window)
    both = measure(message(50, **failed), message(150, **failed), window=window)

    query = "SELECT messages, before, after FROM fingerprints"
    assert only_before(query) == []
    assert both(query) == [(1, 1, 1)]


def test_changes_compare_both_sides_of_the_mark_by_topic_and_in_total(measure: Measure) -> None:
    window = Window(at(0), at(200), mark=at(100))
    made = measure(
        message(10),
        message(20, attempts=3),
        message(110, result="failed"),
        message(130, topic="u"),
        message(140, result="cancelled"),
        window=window,
    )

    counts = made.by("SELECT topic, ended_before, ended_after, dead_before, dead_after FROM changes")
    times = made.by("SELECT topic, total_p50_before_s, total_p99_before_s, total_p99_after_s FROM changes")
    costs = made.by("SELECT topic, retries_before, retries_after, run_before_s, run_after_s FROM changes")

    assert counts == {None: (2, 2, 0, 1), "t": (2, 1, 0, 1), "u": (0, 1, 0, 0)}
    assert times == {None: (10, 20, 130), "t": (10, 20, 110), "u": (None, None, 130)}
    assert costs == {None: (2, 0, 30, 380), "t": (2, 0, 30, 250), "u": (0, 0, 0, 130)}
    assert measure(message(10))("FROM changes") == []


def test_the_cost_of_a_topic_is_the_time_of_all_attempts(measure: Measure) -> None:
    earlier = [{"worker": "v", "started": "2026-11-22T12:00:00Z", "ended": "2026-11-22T12:00:07Z"}]
    made = measure(
        message(20, locked_at=at(12), attempts=2, history=json.dumps(earlier)),
        message(30, locked_at=at(27), result="failed"),
        message(40, locked_at=None, attempts=0, result="expired"),
        message(50, topic="u", locked_at=None, attempts=0, result="cancelled"),
    )

    assert made("SELECT topic, messages, retries, run_s, failed_run_s FROM cost ORDER BY topic") == [
        ("t", 3, 1, 18, 10),
        ("u", 1, 0, 0, 0),
    ]


def test_weeks_end_with_the_window_and_go_on_through_its_baseline(measure: Measure) -> None:
    day = 86400.0
    window = Window.after_baseline(at(-7 * day), at(0), timedelta(days=8))
    slo = Slo.parse("90%:5s")

    def due(end: float, **columns: Any) -> dict[str, Any]:
        begun = at(end - 4)
        return message(end, **{"created_at": begun, "available_at": begun, "locked_at": at(end - 1)} | columns)

    made = measure(
        due(-0.1),
        due(-7 * day, result="failed", attempts=4),
        due(-1, topic="u", result="cancelled"),
        due(-7 * day - 1),
        due(-14 * day),
        due(-14 * day - 1),
        window=window,
        slos=(slo,),
    )

    week = "(epoch_us(week) - epoch_us(TIMESTAMPTZ '2026-11-22 12:00:00+00')) / 86400e6"
    columns = "ended, cancelled, dead, failure_rate, retries, run_s, total_p99_s"
    assert made(f"SELECT topic, {week}, {columns} FROM weeks ORDER BY topic NULLS FIRST, week") == [
        (None, -14, 2, 0, 0, 0, 0, 2, 4),
        (None, -7, 3, 1, 1, 0.5, 3, 3, 4),
        ("t", -14, 2, 0, 0, 0, 0, 2, 4),
        ("t", -7, 2, 0, 1, 0.5, 3, 2, 4),
        ("u", -7, 1, 1, 0, None, 0, 1, None),
    ]
    assert made(f"SELECT slo, {week}, ended, good FROM slo_weeks ORDER BY week") == [
        ("90%:5s", -14, 2, 2),
        ("90%:5s", -7, 2, 1),
    ]


def test_a_window_of_less_than_a_week_has_no_weeks(measure: Measure) -> None:
    assert measure(message(1))("FROM weeks") == []


def test_skew_measures_the_imbalance_of_channels(measure: Measure) -> None:
    made = measure(
        *(message(n, channel="a") for n in range(1, 7)),
        message(10, channel="b"),
        message(11, channel="c"),
        message(12),
        message(13, topic="even", channel="x"),
        message(14, topic="even", channel="y"),
    )

    rows = made.by("SELECT topic, channels, messages, top_share, max_over_mean, gini, top FROM skew")

    # Shares 1, 1, 6 of 8: Gini = 2 (1 + 2 + 18) / (3 * 8) - 4 / 3.
    assert rows["t"][:4] == (3, 8, 0.75, 2.25)
    assert rows["t"][4] == pytest.approx(5 / 12)
    assert [tuple(top.values()) for top in rows["t"][5]] == [("a", 6), ("b", 1), ("c", 1)]
    assert rows["even"][4] == 0
    assert made("SELECT channel, run_s FROM channels WHERE topic = 't' ORDER BY channel") == [
        ("a", 21),
        ("b", 10),
        ("c", 11),
    ]


# With this window a bucket is a minute.
FIVE_HOURS = Window(NOON, NOON + timedelta(hours=5))
BUSY = f"SELECT worker, {AT} / 60, busy FROM capacity ORDER BY worker, time"


def test_capacity_is_the_time_held_in_a_bucket_divided_by_its_width(measure: Measure) -> None:
    # From 30 s to 3 min 15 s, then two short ones of another worker within one bucket.
    made = measure(
        message(195, locked_at=at(30)),
        message(70, locked_at=at(64), handled_by="x"),
        message(90, locked_at=at(84), handled_by="x"),
        window=FIVE_HOURS,
    )

    assert made(BUSY) == [("w", 0, 0.5), ("w", 1, 1.0), ("w", 2, 1.0), ("w", 3, 0.25), ("x", 1, 0.2)]


def test_capacity_counts_earlier_attempts_and_nothing_outside_the_window(measure: Measure) -> None:
    attempts = [
        {"attempt": 1, "worker": "v", "started": "2026-11-22T12:00:10+00:00", "ended": "2026-11-22T12:00:40.5+00:00"},
        {"attempt": 2, "worker": "v", "ended": "2026-11-22T12:00:50+00:00"},
        {"attempt": 3, "worker": "v", "started": "yesterday", "ended": "today"},
    ]
    made = measure(
        message(60, locked_at=at(-600), history=json.dumps(attempts)),
        message(70, history="no JSON", locked_at=None),
        message(71, history='{"worker": "z"}', locked_at=None),
        window=FIVE_HOURS,
    )

    assert made(BUSY) == [("v", 0, 30.5 / 60), ("w", 0, 1.0)]


def test_a_goal_is_met_by_messages_that_succeed_in_time(measure: Measure) -> None:
    all_topics, one_topic = Slo.parse("90%:5s"), Slo.parse("u=99%:1m")
    window = Window(at(-7200), at(3600))
    made = measure(
        message(5),
        message(6),
        message(4, result="failed"),
        message(3, result="cancelled"),
        message(50, topic="u"),
        message(3599, created_at=at(3598), available_at=at(3598)),
        window=window,
        slos=(all_topics, one_topic),
    )

    assert made(f"SELECT slo, {AT}, ended, good FROM slo ORDER BY slo, time") == [
        ("90%:5s", 0, 4, 1),
        ("90%:5s", 3540, 1, 1),
        ("u=99%:1m", 0, 1, 1),
    ]
    assert made.burn_rate(all_topics, window, 3) == (5, 2, pytest.approx(6.0))
    assert made.burn_rate(one_topic, window, 2) == (1, 1, 0)


def test_the_burn_rate_of_a_goal_is_measured_back_from_the_end_of_the_window(measure: Measure) -> None:
    slo, other = Slo.parse("90%:5s"), Slo.parse("x=99%:1s")
    window = Window(at(0), at(7 * 3600))
    late = [message(9) for _ in range(10)]
    end = 6 * 3600
    recent = [message(end + 1, created_at=at(end - 20 * (n == 0)), available_at=at(0)) for n in range(10)]
    made = measure(*late, *recent, window=window, slos=(slo, other))

    assert made.burn_rate(slo, window, 1)[2] == pytest.approx(1.0)
    assert made.burn_rate(slo, window, 6)[2] == pytest.approx(1.0)
    assert made.burn_rate(slo, window, 7)[2] == pytest.approx(5.5)
    assert made.burn_rate(other, window, 7)[2] is None


def test_a_random_archive_agrees_with_counting_by_hand(measure: Measure) -> None:
    dice = random.Random(11)
    window = Window.after_baseline(at(3600), at(7200), timedelta(hours=1))
    slo = Slo.parse("90%:30s")
    messages = [random_message(dice) for _ in range(600)]
    shown = [each for each in messages if each["archived_at"] >= window.since]
    counted = [each for each in shown if each["result"] != "cancelled"]

    made = measure(*messages, window=window, slos=(slo,))

    topics = "abc"
    dead = {t: sum(is_dead(each) for each in shown if each["topic"] == t) for t in topics}
    assert made.by("SELECT topic, ended, dead FROM failures") == {
        t: (sum(each["topic"] == t for each in shown), dead[t]) for t in topics
    }
    assert made("SELECT total_p50_s, total_p99_s FROM latency WHERE time IS NULL AND topic IS NULL") == [
        tuple(rounded(percentile(sorted(total_s(each) for each in counted), p)) for p in (50, 99))
    ]
    ran = sum((each["archived_at"] - each["locked_at"]).total_seconds() for each in shown)
    assert made("SELECT sum(run_s) FROM cost")[0][0] == pytest.approx(ran)
    held = sum((each["archived_at"] - max(each["locked_at"], window.since)).total_seconds() for each in shown)
    assert made(f"SELECT sum(busy) * {window.bucket_s} FROM capacity")[0][0] == pytest.approx(held)
    good = sum(each["result"] == "success" and total_s(each) <= 30 for each in counted)
    assert made("SELECT sum(ended)::BIGINT, sum(good)::BIGINT FROM slo") == [(len(counted), good)]
    before = [each for each in messages if each["archived_at"] < window.since]
    assert made("SELECT sum(before)::BIGINT, sum(messages)::BIGINT FROM fingerprints") == [
        (sum(map(is_dead, before)), sum(dead.values()))
    ]
    assert made("SELECT dead_before, dead_after, retries_before FROM changes WHERE topic IS NULL") == [
        (sum(map(is_dead, before)), sum(dead.values()), sum(each["attempts"] - 1 for each in before))
    ]


def random_message(dice: random.Random) -> dict[str, Any]:
    """A message that ended in one of the two hours after noon."""
    ended = dice.uniform(0, 7199)
    run, wait = dice.lognormvariate(0, 2), dice.lognormvariate(1, 1)
    due = at(ended - run - wait)
    result = dice.choice(["success"] * 6 + ["failed", "rejected", "expired", "cancelled"])
    return message(
        ended,
        topic=dice.choice("aabc"),
        created_at=due,
        available_at=due,
        locked_at=at(ended - run),
        attempts=dice.choice((1, 1, 1, 3)),
        result=result,
        error_fingerprint="same",
        handled_by=dice.choice("vw"),
    )


def is_dead(each: dict[str, Any]) -> bool:
    return each["result"] not in ("success", "cancelled")


def total_s(each: dict[str, Any]) -> float:
    return float((each["archived_at"] - each["created_at"]).total_seconds())


def percentile(ordered: list[float], percent: int) -> float:
    return ordered[-(-len(ordered) * percent // 100) - 1]


def rounded(seconds: float) -> float:
    return float(f"{seconds:.3g}")
