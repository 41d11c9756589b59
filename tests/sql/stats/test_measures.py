"""Measures of workers: latency and throughput."""

from __future__ import annotations

import random
from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from pgrouse.metrics.histogram import BOUNDS_S, BUCKETS
from tests.server.postgres import Database
from tests.sql.measuring import report
from tests.sql.queue import Queue

# messages.latency: how long messages waited and handlers ran.

NOON = "2026-01-02 12:00:30+00"


def latency(queue: Queue, since: str = "1 hour", topic: str | None = None) -> dict[str, object]:
    rows = queue.rows("SELECT * FROM messages.latency(%s::interval, %s)", [since, topic])
    return {row.topic: row for row in rows}


def test_each_topic_has_percentiles_over_all_reports(queue: Queue) -> None:
    queue.stop_clock(NOON)
    report(queue, {"topic": "t", "waits": {"10": 50}, "runs": {"20": 90}}, {"topic": "u", "wakes": {"1": 1}})
    queue.later("2 minutes")
    report(queue, {"topic": "t", "waits": {"10": 45, "30": 5}, "runs": {"20": 10}})

    found = latency(queue)

    t, u = found["t"], found["u"]
    assert (t.waits, t.runs, t.wakes, u.waits, u.wakes) == (100, 100, 0, 0, 1)  # type: ignore[attr-defined]
    assert t.wait_p95_s == pytest.approx(BOUNDS_S[9])  # type: ignore[attr-defined]
    assert BOUNDS_S[28] < t.wait_p99_s < BOUNDS_S[29]  # type: ignore[attr-defined]
    assert t.run_p99_s == pytest.approx(BOUNDS_S[18] + 0.99 * (BOUNDS_S[19] - BOUNDS_S[18]))
    assert (t.wake_p50_s, u.wait_p50_s) == (None, None)  # type: ignore[attr-defined]


def test_earlier_measures_do_not_count(queue: Queue) -> None:
    queue.stop_clock(NOON)
    report(queue, {"topic": "before", "runs": {"1": 1}})
    queue.later("61 minutes")
    report(queue, {"topic": "now", "runs": {"1": 1}})

    assert set(latency(queue)) == {"now"}
    assert set(latency(queue, "2 hours")) == {"before", "now"}


def test_one_topic_can_be_selected(queue: Queue) -> None:
    report(queue, {"topic": "t", "runs": {"1": 1}}, {"topic": "u", "runs": {"1": 1}})

    assert set(latency(queue, topic="u")) == {"u"}
    assert latency(queue, topic="none") == {}


def test_only_the_requested_minutes_are_read(queue: Queue) -> None:
    """The week before is not: the table is read by its key."""
    queue.conn.execute(
        """
        INSERT INTO messages.measure (minute, topic, success)
        SELECT date_trunc('minute', messages.now()) - n * interval '1 minute', 'topic ' || t, 1
        FROM generate_series(0, 299) AS n, generate_series(1, 20) AS t
        """
    )
    queue.conn.execute("ANALYZE messages.measure")
    with queue.conn.transaction(force_rollback=True):
        queue.conn.execute("SELECT * FROM messages.latency('2 minutes')")
        (pages,) = queue.conn.execute(
            "SELECT pg_stat_get_xact_tuples_returned('messages.measure'::regclass)"
        ).fetchone() or (None,)

    assert pages < 100, "it reads from the beginning of the table"


# messages.throughput: attempts over time.


def bars(queue: Queue, since: str = "1 hour", topic: str | None = None, count: int = 60) -> list[Any]:
    return queue.rows("SELECT * FROM messages.throughput(%s::interval, %s, %s)", [since, topic, count])


def test_each_bar_has_the_attempts_of_its_time_and_empty_bars_are_included(queue: Queue) -> None:
    queue.stop_clock(NOON)
    report(queue, {"topic": "t", "success": 3, "retried": 1, "waits": {"10": 4}}, {"topic": "u", "success": 4})
    queue.later("2 minutes")
    report(queue, {"topic": "t", "failed": 1})

    found = bars(queue, "5 minutes")

    assert [(bar.success, bar.retried, bar.failed) for bar in found] == [
        (0, 0, 0),
        (0, 0, 0),
        (7, 1, 0),
        (0, 0, 0),
        (0, 0, 1),
    ]
    assert [bar.s for bar in found] == [60, 60, 60, 60, 30]
    assert found[2].wait_p95_s == pytest.approx(BOUNDS_S[8] + 0.95 * (BOUNDS_S[9] - BOUNDS_S[8]))
    assert found[2].wait_p50_s < found[2].wait_p95_s < found[2].wait_p99_s
    assert found[0].wait_p95_s is None


def test_throughput_one_topic_can_be_selected(queue: Queue) -> None:
    queue.stop_clock(NOON)
    report(queue, {"topic": "t", "success": 3}, {"topic": "u", "success": 4})

    assert sum(bar.success for bar in bars(queue, topic="u")) == 4


def test_one_worker_can_be_selected_with_all_its_topics(queue: Queue) -> None:
    queue.stop_clock(NOON)
    report(queue, {"topic": "t", "success": 3, "runs": {"10": 3}}, {"topic": "u", "failed": 1, "runs": {"10": 1}})
    report(queue, {"topic": "t", "success": 5}, worker="other")

    found = queue.rows("SELECT * FROM messages.throughput(p_worker => 'w')")

    assert [sum(getattr(bar, column) for bar in found) for column in ("success", "failed")] == [3, 1]
    assert found[-1].run_p95_s == pytest.approx(BOUNDS_S[8] + 0.95 * (BOUNDS_S[9] - BOUNDS_S[8]))


def test_a_topic_of_a_worker_cannot_be_selected(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="not measured"):
        queue.rows("SELECT * FROM messages.throughput(p_topic => 't', p_worker => 'w')")


@pytest.mark.parametrize(
    ("since", "count", "expected", "minutes"),
    [("1 hour", 60, 60, 1), ("1 hour", 20, 20, 3), ("1 day", 100, 96, 15), ("7 days", 100, 100, 101)],
)
def test_there_are_at_most_the_given_number_of_bars_each_of_whole_minutes(
    queue: Queue, since: str, count: int, expected: int, minutes: int
) -> None:
    queue.stop_clock(NOON)
    report(queue, {"topic": "t", "success": 1})

    found = bars(queue, since, count=count)

    assert len(found) == expected
    assert (found[1].at - found[0].at).total_seconds() == 60 * minutes
    assert (found[-1].success, sum(bar.success for bar in found)) == (1, 1)


def test_the_bars_do_not_move_while_time_passes_within_one(queue: Queue) -> None:
    queue.stop_clock(NOON)
    before = [bar.at for bar in bars(queue, count=20)]
    queue.later("1 minute")

    assert [bar.at for bar in bars(queue, count=20)] == before


@pytest.mark.parametrize(("since", "count"), [("30 seconds", 10), ("9 days", 10), ("1 hour", 0), ("1 hour", 1001)])
def test_invalid_arguments_are_refused(queue: Queue, since: str, count: int) -> None:
    with pytest.raises(errors.InvalidParameterValue):
        bars(queue, since, count=count)


# messages.quantile: the time that a given share of the measures did not exceed.


def quantile(queue: Queue, counts: list[int | None], q: float) -> float | None:
    found: float | None = queue.value("SELECT messages.quantile(%s::bigint[], %s)", [counts, q])
    return found


def test_it_interpolates_evenly_within_its_bucket(queue: Queue) -> None:
    low, high = BOUNDS_S[1], BOUNDS_S[2]

    assert quantile(queue, [0, 0, 10], 0.5) == pytest.approx((low + high) / 2)
    assert quantile(queue, [0, 0, 10], 1) == pytest.approx(high)
    assert quantile(queue, [10], 0.5) == pytest.approx(BOUNDS_S[0] / 2)


@pytest.mark.parametrize("q", [0.5, 0.95, 0.99])
def test_for_spread_out_times_its_error_is_small(queue: Queue, q: float) -> None:
    rng = random.Random(7)
    times = sorted(rng.lognormvariate(-3, 1.5) for _ in range(5000))
    counts: list[int | None] = [0] * BUCKETS
    for each in times:
        nth = bisect_left(BOUNDS_S, each)
        counts[nth] = (counts[nth] or 0) + 1

    found = quantile(queue, counts, q)

    assert found == pytest.approx(times[int(q * len(times))], rel=0.2)


def test_its_error_is_at_most_the_width_of_a_bucket(queue: Queue) -> None:
    """All measures are at the lower bound of their bucket."""
    found = quantile(queue, [0] * 20 + [10], 0.99)

    assert found is not None
    assert 1 <= found / BOUNDS_S[19] <= 2**0.5


def test_in_the_open_bucket_the_lower_bound_is_returned(queue: Queue) -> None:
    assert quantile(queue, [0] * 47 + [3], 0.5) == pytest.approx(BOUNDS_S[-1])


def test_an_empty_histogram_has_no_quantile(queue: Queue) -> None:
    assert quantile(queue, [], 0.5) is None
    assert quantile(queue, [0, 0], 0.5) is None
    assert quantile(queue, [None, 0], 0.5) is None


def test_missing_counts_are_zero(queue: Queue) -> None:
    assert quantile(queue, [None, None, 10], 1) == quantile(queue, [0, 0, 10], 1)


@pytest.mark.parametrize("q", [-0.1, 1.1, 95.0])
def test_a_percentage_is_refused(queue: Queue, q: float) -> None:
    with pytest.raises(errors.InvalidParameterValue, match=r"0\.95 is the 95th percentile"):
        quantile(queue, [1], q)


# messages.quantiles: several quantiles at once.

SEVERAL = "SELECT messages.quantiles(%s::bigint[], '{0,0.1,0.5,0.95,0.99,1}')"
SINGLE = "SELECT ARRAY(SELECT messages.quantile(%s::bigint[], q) FROM unnest('{0,0.1,0.5,0.95,0.99,1}'::float8[]) AS q)"


def test_they_agree_with_quantile(queue: Queue) -> None:
    counts = [0, 0, 10, 20, 0, 5, 3, *[0] * 33, 1]

    assert queue.value(SEVERAL, [counts]) == queue.value(SINGLE, [counts])
    assert len(set(queue.value(SEVERAL, [counts]))) == 6


# messages.record_measures: adds up the measures that workers report.

COUNTS = "success, rejected, failed, lock_expired, retried, deferred, released, lost"
SUMS = "SELECT coalesce(sum(success), 0)::bigint FROM messages.measure"


def test_a_report_is_stored_in_the_row_of_its_minute_and_topic(queue: Queue) -> None:
    queue.stop_clock("2026-01-02 03:04:05+00")
    names = COUNTS.split(", ")

    report(queue, {"topic": "t", **{name: n for n, name in enumerate(names, 1)}, "runs": {"3": 4}, "waits": {"1": 2}})

    row = queue.row(
        f"SELECT minute::text, topic, {COUNTS}, messages.unpack_histogram(waits) "
        "AS waits, messages.unpack_histogram(runs) AS runs, wakes FROM messages.measure"
    )
    assert (row.minute[:16], row.topic) == ("2026-01-02 03:04", "t")
    assert [getattr(row, name) for name in names] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (row.waits[:3], row.runs[:4], row.wakes) == ([2, 0, 0], [0, 0, 4, 0], 0)


def test_reports_of_one_minute_from_any_worker_are_added_up(queue: Queue) -> None:
    queue.stop_clock("2026-01-02 03:04:05+00")

    report(queue, {"topic": "t", "success": 1, "waits": {"5": 1}}, {"topic": "u", "lost": 3})
    report(queue, {"topic": "t", "success": 2, "waits": {"5": 2}}, worker="v")

    rows = queue.rows(
        "SELECT topic, success, lost, (messages.unpack_histogram(waits))[5] AS waits FROM messages.measure ORDER BY 1"
    )
    assert [tuple(row) for row in rows] == [("t", 3, 0, 3), ("u", 0, 3, 0)]


def test_the_reports_of_a_worker_are_added_up_over_its_topics(queue: Queue) -> None:
    queue.stop_clock("2026-01-02 03:04:05+00")

    report(queue, {"topic": "t", "success": 1, "waits": {"5": 1}}, {"topic": "u", "success": 3, "waits": {"5": 4}})
    report(queue, {"topic": "t", "success": 2, "lost": 1})
    report(queue, {"topic": "t", "success": 9}, worker="v")

    rows = queue.rows(
        "SELECT minute::text, worker, success, lost, (messages.unpack_histogram(waits))[5] AS waits "
        "FROM messages.worker_measure ORDER BY worker"
    )
    assert [(row.minute[:16], *row[1:]) for row in rows] == [
        ("2026-01-02 03:04", "v", 9, 0, 0),
        ("2026-01-02 03:04", "w", 6, 1, 5),
    ]


def test_a_repeated_report_adds_nothing_and_is_accepted(queue: Queue) -> None:
    first = report(queue, {"topic": "t", "success": 5}, number=1)
    again = report(queue, {"topic": "t", "success": 5}, number=1)

    assert (first, again, queue.value(SUMS)) == (True, True, 5)
    assert report(queue, {"topic": "t", "success": 1}, number=2)
    assert queue.value(SUMS) == 6


def test_an_unregistered_worker_is_reported_and_nothing_is_added(queue: Queue) -> None:
    taken = queue.value(
        "SELECT messages.record_measures('unregistered', 1, %s)", [Jsonb([{"topic": "t", "success": 1}])]
    )

    assert (taken, queue.value(SUMS)) == (False, 0)


@pytest.mark.parametrize(
    "measure", [{"success": 1}, {"topic": "t", "waits": {"99": 1}}, {"topic": "t", "success": -1}, {"topic": "t" * 201}]
)
def test_an_invalid_measure_refuses_the_whole_report(queue: Queue, measure: dict[str, object]) -> None:
    with pytest.raises((errors.DataError, errors.IntegrityError)):
        report(queue, {"topic": "a", "success": 1}, measure)

    assert queue.value(SUMS) == 0
    # The number was not used: the report can be sent again.
    assert queue.value("SELECT max(measured) FROM messages.worker") == 0


def test_concurrent_reports_lose_nothing_and_do_not_block_each_other(own_database: Database) -> None:
    workers = [Queue(own_database.connect()) for _ in range(4)]
    # A worker that is delayed for a second would otherwise have to send its report again.
    workers[0].conn.execute("ALTER FUNCTION messages.record_measures SET lock_timeout = '60s'")
    topics = [f"t{n}" for n in range(20)]

    def work(nth: int) -> None:
        order = topics if nth % 2 else topics[::-1]
        for _ in range(10):
            report(workers[nth], *({"topic": topic, "success": 1} for topic in order), worker=f"w{nth}")

    with ThreadPoolExecutor() as threads:
        list(threads.map(work, range(4)))

    assert workers[0].value(SUMS) == 4 * 10 * 20


def test_the_rows_of_a_minute_are_updated_in_place(own_queue: Queue) -> None:
    """A HOT update does not change the index; otherwise a busy fleet would fill it."""
    own_queue.stop_clock("2026-01-02 03:04:05+00")
    for _ in range(60):
        report(own_queue, *({"topic": f"t{n}", "waits": {"7": 1}} for n in range(5)))

    own_queue.value("SELECT pg_stat_force_next_flush()::text")
    changed, hot = own_queue.row(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = 'messages.measure'::regclass"
    )
    assert changed >= 59 * 5
    assert hot > 0.9 * changed


def test_a_locked_row_of_the_worker_is_not_waited_for_and_the_report_is_sent_again(queue: Queue, other: Queue) -> None:
    report(queue, {"topic": "t", "success": 5}, number=1)
    other.conn.execute("SET lock_timeout = '2s'")
    record = "SELECT messages.record_measures('w', %s, %s)"
    measures = Jsonb([{"topic": "t", "success": 1}])
    with queue.conn.transaction():
        queue.call("drain_worker", "w")
        again = other.value(record, [1, Jsonb([{"topic": "t", "success": 5}])])
        new = other.value(record, [2, measures])

    assert (again, new, queue.value(SUMS)) == (True, None, 5)
    assert (other.value(record, [2, measures]), other.value(record, [2, measures])) == (True, True)
    assert queue.value(SUMS) == 6


# messages.pack_histogram: a histogram as one number.


def packed(queue: Queue, counts: Any) -> Any:
    return queue.value("SELECT messages.pack_histogram(%s)", [Jsonb(counts)])


def test_numbers_can_be_added_bucket_by_bucket(queue: Queue) -> None:
    both = queue.value(
        "SELECT messages.unpack_histogram(messages.pack_histogram(%s) + messages.pack_histogram(%s))",
        [Jsonb({"1": 3, "48": 1}), Jsonb({"1": 4, "7": 2})],
    )

    assert both == [7, 0, 0, 0, 0, 0, 2, *[0] * 40, 1]


@pytest.mark.parametrize("counts", [{"0": 1}, {"49": 1}, {"7": -1}, {"7": 1_000_000_001}])
def test_a_count_that_would_overflow_its_bucket_is_refused(queue: Queue, counts: dict[str, int]) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="use buckets 1 to 48 and counts from 0 to 1000000000"):
        packed(queue, counts)


# messages.unpack_histogram: the counts of a histogram.


def test_sums_have_room_for_a_week_of_the_fullest_minutes(queue: Queue) -> None:
    full = queue.value(
        "SELECT messages.unpack_histogram(messages.pack_histogram(%s) * 999)", [Jsonb({"1": 10**9, "2": 10**9})]
    )

    assert full[:3] == [999 * 10**9, 999 * 10**9, 0]


def test_null_returns_nothing(queue: Queue) -> None:
    assert queue.value("SELECT messages.unpack_histogram(0)") == [0] * 48
    assert queue.value("SELECT messages.unpack_histogram(NULL)") is None
