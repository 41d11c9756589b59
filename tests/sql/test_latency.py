"""messages.latency: how long messages waited and handlers ran."""

from __future__ import annotations

import pytest

from pgrouse.metrics.histogram import BOUNDS_S
from tests.sql.measuring import report
from tests.sql.queue import Queue

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
    assert t.run_p99_s == pytest.approx(BOUNDS_S[18] + 0.99 * (BOUNDS_S[19] - BOUNDS_S[18]))  # type: ignore[attr-defined]
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
