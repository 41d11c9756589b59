"""messages.throughput: attempts over time."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors

from pgrouse.metrics.histogram import BOUNDS_S
from tests.sql.measuring import report
from tests.sql.queue import Queue

NOON = "2026-01-02 12:00:30+00"


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


def test_one_topic_can_be_selected(queue: Queue) -> None:
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
