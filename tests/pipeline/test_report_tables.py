"""The tables of a report, from archives small enough to be counted by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.testing import assertDataFrameEqual

from pyspark_pgrouse.report.capacity import capacity, holds
from pyspark_pgrouse.report.changes import changes
from pyspark_pgrouse.report.channels import channels, skew
from pyspark_pgrouse.report.ended import ended
from pyspark_pgrouse.report.error_budget import attainment, compute_burn_rates
from pyspark_pgrouse.report.failures import failures
from pyspark_pgrouse.report.fingerprints import fingerprint_trend, fingerprints
from pyspark_pgrouse.report.latency import latency, latency_by_topic
from pyspark_pgrouse.report.retries import retries
from pyspark_pgrouse.report.slo import Slo
from pyspark_pgrouse.report.throughput import throughput
from pyspark_pgrouse.report.window import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::ResourceWarning"),
]

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
HOUR = Window(NOON, NOON + timedelta(hours=1))
ARCHIVE = (
    "id bigint, topic string, channel string, created_at timestamp, available_at timestamp, attempts int, locked_at timestamp, "
    "history string, result string, error string, error_fingerprint string, handled_by string, archived_at timestamp"
)
Measure = Callable[..., "DataFrame"]


def at(seconds: float) -> datetime:
    """The given number of seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def message(end: float, **columns: Any) -> dict[str, Any]:
    """A message of topic t that was due at noon, claimed at once, and ended the given number of seconds after noon."""
    defaults = {"id": 1, "topic": "t", "created_at": at(0), "available_at": at(0), "attempts": 1, "locked_at": at(0)}
    return defaults | {"result": "success", "handled_by": "w", "archived_at": at(end)} | columns


@pytest.fixture
def measured(spark: SparkSession) -> Measure:
    """`measured(message(…), …)`: the input of the tables, by default for the hour after noon."""

    def measure(*messages: dict[str, Any], window: Window = HOUR) -> DataFrame:
        return ended(spark.createDataFrame(list(messages), ARCHIVE), window)

    return measure


def test_an_ended_message_is_measured_to_the_microsecond(measured: Measure) -> None:
    table = measured(message(2, created_at=at(-9), available_at=at(-0.5), locked_at=at(0.000001)))

    (row,) = table.select("wait_s", "run_s", "total_s", "is_dead", "counts").collect()

    assert tuple(row) == (0.500001, 1.999999, 2.5, False, True)


def test_the_total_of_a_retried_message_begins_at_its_creation(measured: Measure) -> None:
    history = '[{"attempt": 1}]'
    table = measured(
        message(20, created_at=at(-5), available_at=at(10), attempts=2, locked_at=at(12)),
        message(21, created_at=at(-5), available_at=at(10), history=history, locked_at=at(12)),
        message(22, created_at=at(-5), available_at=at(-60), locked_at=None, attempts=0, result="expired"),
    )

    rows = table.orderBy("archived_at").select("wait_s", "run_s", "total_s").collect()

    assert [tuple(row) for row in rows] == [(2, 8, 25), (2, 9, 26), (None, None, 27)]


def test_a_message_belongs_to_the_time_at_which_it_ended(measured: Measure) -> None:
    window = Window.after_baseline(at(100), at(200), timedelta(seconds=50))
    table = measured(*(message(end) for end in (49.9, 50, 99.9, 100, 199.9, 200)), window=window)

    rows = table.orderBy("archived_at").select("is_shown", "is_after").collect()

    assert [tuple(row) for row in rows] == [(False, False), (False, False), (True, True), (True, True)]


def test_throughput_counts_by_topic_and_bucket_and_failures_are_its_sum(spark: SparkSession, measured: Measure) -> None:
    table = measured(
        message(1),
        message(59.9, result="failed"),
        message(60, result="cancelled"),
        message(61, topic="u", result="cancelled"),
    )

    made = throughput(table, 60).cache()

    columns = "topic string, at timestamp, ended bigint, success bigint, rejected bigint, failed bigint, lock_expired bigint, expired bigint, cancelled bigint"
    rows = [
        ("t", at(0), 2, 1, 0, 1, 0, 0, 0),
        ("t", at(60), 1, 0, 0, 0, 0, 0, 1),
        ("u", at(60), 1, 0, 0, 0, 0, 0, 1),
    ]
    assertDataFrameEqual(made, spark.createDataFrame(rows, columns))
    summed = failures(made).select("topic", "ended", "dead", "failure_rate")
    rates = [("t", 3, 1, 0.5), ("u", 1, 0, None)]
    assertDataFrameEqual(
        summed, spark.createDataFrame(rates, "topic string, ended bigint, dead bigint, failure_rate double")
    )


def test_latency_has_percentiles_by_bucket_and_topic_of_all_topics_and_of_the_whole_window(measured: Measure) -> None:
    # Total times of 1 to 100 s in topic t, and 200 s in u; a cancelled one does not count.
    table = measured(
        *(message(end) for end in range(1, 101)),
        message(200, topic="u"),
        message(3000, result="cancelled"),
    ).cache()

    rows = latency(table, 60).select("at", "topic", "messages", "total_p50_s", "total_p95_s", "total_p99_s").collect()
    by_topic = (
        latency_by_topic(table).orderBy("topic").select("topic", "total_p50_s", "wait_p99_s", "run_p95_s").collect()
    )

    found = {(None if r.at is None else r.at.minute, r.topic): tuple(r)[2:] for r in rows}
    assert found[0, "t"] == (59, 30, 57, 59)
    assert found[1, "t"] == (41, 80, 98, 100)
    assert found[3, None] == found[3, "u"] == (1, 200, 200, 200)
    assert found[None, None] == (101, 51, 96, 100)
    assert [tuple(row) for row in by_topic] == [("t", 50, 0, 95), ("u", 200, 0, 200)]


def test_retries_count_messages_by_their_attempts(spark: SparkSession, measured: Measure) -> None:
    table = measured(
        message(1),
        message(2),
        message(3, attempts=3, result="failed"),
        message(4, attempts=0, locked_at=None, result="expired"),
    )

    made = retries(table)

    rows = [("t", 1, 2, 0), ("t", 3, 1, 1), ("t", 0, 1, 1)]
    assertDataFrameEqual(made, spark.createDataFrame(rows, "topic string, attempts int, messages bigint, dead bigint"))


def test_fingerprints_have_the_newest_error_as_a_sample_and_mark_new_ones(measured: Measure) -> None:
    window = Window(at(0), at(3600), mark=at(1800))
    old = {"result": "failed", "error_fingerprint": "old"}
    table = measured(
        message(10, **old, id=1, error="first"),
        message(2000, **old, id=2, error="last"),
        message(1900, **old, id=3, error="between"),
        message(2100, id=4, result="failed", error_fingerprint="new", error="x" * 9000),
        message(2200, id=5, result="expired"),
        message(2300, id=6),
        window=window,
    )

    rows = {r.fingerprint: r for r in fingerprints(table).collect()}
    trend = fingerprint_trend(table, 60).where("fingerprint = 'old'").orderBy("at").collect()

    assert sorted(rows) == ["expired", "new", "old"]
    assert tuple(rows["old"])[2:5] == (3, 1, 2)
    assert (rows["old"].sample_id, rows["old"].sample_error) == (2, "last")
    assert (rows["new"].before, rows["new"].after, len(rows["new"].sample_error)) == (0, 1, 2000)
    assert (rows["expired"].sample_result, rows["expired"].sample_error) == ("expired", None)
    assert [row.messages for row in trend] == [1, 1, 1]


def test_an_error_only_in_the_baseline_is_not_shown(measured: Measure) -> None:
    window = Window.after_baseline(at(100), at(200), timedelta(seconds=100))
    failed = {"result": "failed", "error_fingerprint": "f"}

    only_before = fingerprints(measured(message(50, **failed), window=window)).count()
    both = fingerprints(measured(message(50, **failed), message(150, **failed), window=window)).collect()

    assert only_before == 0
    assert [(r.messages, r.before, r.after) for r in both] == [(1, 1, 1)]


def test_changes_compare_both_sides_of_the_mark_by_topic_and_in_total(measured: Measure) -> None:
    window = Window(at(0), at(200), mark=at(100))
    table = measured(
        message(10),
        message(20),
        message(110, result="failed"),
        message(130, topic="u"),
        message(140, result="cancelled"),
        window=window,
    )

    rows = {row.topic: row.asDict() for row in changes(table).collect()}

    assert [rows[None][f"{what}_{side}"] for what in ("ended", "dead") for side in ("before", "after")] == [2, 2, 0, 1]
    assert (rows["t"]["total_p99_before_s"], rows["t"]["total_p99_after_s"]) == (20, 110)
    assert (rows["u"]["ended_before"], rows["u"]["total_p50_before_s"]) == (0, None)


def test_skew_measures_the_imbalance_of_channels(measured: Measure) -> None:
    table = measured(
        *(message(n, channel="a") for n in range(1, 7)),
        message(10, channel="b"),
        message(11, channel="c"),
        message(12),
        message(13, topic="even", channel="x"),
        message(14, topic="even", channel="y"),
    )

    rows = {row.topic: row for row in skew(channels(table)).collect()}

    # Shares 1, 1, 6 of 8: Gini = 2 (1 + 2 + 18) / (3 * 8) - 4 / 3.
    t = rows["t"]
    assert (t.channels, t.messages, t.top_share, t.max_over_mean) == (3, 8, 0.75, 2.25)
    assert t.gini == pytest.approx(5 / 12)
    assert [(top.channel, top.messages) for top in t.top] == [("a", 6), ("b", 1), ("c", 1)]
    assert rows["even"].gini == 0


def test_capacity_is_the_time_held_in_a_bucket_divided_by_its_width(measured: Measure) -> None:
    # From 30 s to 3 min 15 s, then two short ones of another worker within one bucket.
    table = measured(
        message(195, locked_at=at(30)),
        message(70, locked_at=at(64), handled_by="x"),
        message(90, locked_at=at(84), handled_by="x"),
    )

    rows = capacity(holds(table, HOUR), 60).orderBy("worker", "at").collect()

    assert [(r.worker, r["at"].minute, r.busy) for r in rows] == [
        ("w", 0, 0.5),
        ("w", 1, 1.0),
        ("w", 2, 1.0),
        ("w", 3, 0.25),
        ("x", 1, 0.2),
    ]


def test_capacity_counts_earlier_attempts_and_nothing_outside_the_window(measured: Measure) -> None:
    attempts = [
        {"attempt": 1, "worker": "v", "started": "2026-11-22T12:00:10+00:00", "ended": "2026-11-22T12:00:40.5+00:00"},
        {"attempt": 2, "worker": "v", "ended": "2026-11-22T12:00:50+00:00"},
        {"attempt": 3, "worker": "v", "started": "yesterday", "ended": "today"},
    ]
    table = measured(
        message(60, locked_at=at(-600), history=json.dumps(attempts)), message(70, history="no JSON", locked_at=None)
    )

    rows = capacity(holds(table, HOUR), 60).orderBy("worker").collect()

    assert [(r.worker, r["at"].minute, r.busy) for r in rows] == [("v", 0, 30.5 / 60), ("w", 0, 1.0)]


def test_a_goal_is_met_by_messages_that_succeed_in_time(spark: SparkSession, measured: Measure) -> None:
    all_topics, one_topic = Slo.parse("90%:5s"), Slo.parse("u=99%:1m")
    table = measured(
        message(5),
        message(6),
        message(4, result="failed"),
        message(3, result="cancelled"),
        message(50, topic="u"),
        message(3599, created_at=at(3598), available_at=at(3598)),
    )

    made = attainment(table, [all_topics, one_topic], 60).cache()
    burn_rates = compute_burn_rates(made, [all_topics, one_topic], Window(at(-7200), at(3600)))

    steps = [("90%:5s", at(0), 4, 1), ("90%:5s", at(3540), 1, 1), ("u=99%:1m", at(0), 1, 1)]
    assertDataFrameEqual(made, spark.createDataFrame(steps, "slo string, at timestamp, ended bigint, good bigint"))
    rows = {(row.slo, row.hours): (row.ended, row.good, row.burn_rate) for row in burn_rates.collect()}
    assert rows["90%:5s", 3.0] == (5, 2, pytest.approx(6.0))
    assert rows["u=99%:1m", 1.0] == (1, 1, 0)
    assert ("90%:5s", 6.0) not in rows


def test_the_burn_rate_of_a_goal_is_measured_back_from_the_end_of_the_window(spark: SparkSession) -> None:
    slo = Slo.parse("90%:5s")
    steps = [("90%:5s", at(0), 10, 0), ("90%:5s", at(6 * 3600), 10, 9)]
    made = spark.createDataFrame(steps, "slo string, at timestamp, ended bigint, good bigint")

    rows = compute_burn_rates(made, [slo, Slo.parse("x=99%:1s")], Window(at(0), at(7 * 3600))).collect()

    found = {(row.slo, row.hours): row.burn_rate for row in rows}
    assert found["90%:5s", 1.0] == pytest.approx(1.0)
    assert found["90%:5s", 6.0] == pytest.approx(1.0)
    assert found["90%:5s", 7.0] == pytest.approx(5.5)
    assert found["x=99%:1s", 7.0] is None
