"""messages.record_measures: adds up the measures that workers report."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.server.postgres import Database
from tests.sql.measuring import report
from tests.sql.queue import Queue

COUNTS = "success, rejected, failed, lock_expired, retried, deferred, released, lost"
SUMS = "SELECT coalesce(sum(success), 0)::bigint FROM messages.measure"


def test_a_report_is_stored_in_the_row_of_its_minute_and_topic(queue: Queue) -> None:
    queue.stop_clock("2026-01-02 03:04:05+00")
    names = COUNTS.split(", ")

    report(queue, {"topic": "t", **{name: n for n, name in enumerate(names, 1)}, "runs": {"3": 4}, "waits": {"1": 2}})

    row = queue.row(
        f"SELECT minute::text, topic, {COUNTS}, messages.unpack_histogram(waits) AS waits, messages.unpack_histogram(runs) AS runs, wakes FROM messages.measure"
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


def test_no_counts_are_zero(queue: Queue) -> None:
    assert (packed(queue, {}), queue.value("SELECT messages.pack_histogram(NULL)")) == (0, 0)


@pytest.mark.parametrize("counts", [{"0": 1}, {"49": 1}, {"7": -1}, {"7": 1_000_000_001}])
def test_a_count_that_would_overflow_its_bucket_is_refused(queue: Queue, counts: dict[str, int]) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="use buckets 1 to 48 and counts from 0 to 1000000000"):
        packed(queue, counts)
