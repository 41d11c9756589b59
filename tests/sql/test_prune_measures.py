"""messages.prune_measures: deletes old measures."""

from __future__ import annotations

from tests.sql.measuring import report
from tests.sql.queue import Queue


def topics(queue: Queue) -> list[str]:
    return [row.topic for row in queue.rows("SELECT topic FROM messages.measure ORDER BY topic")]


def test_measures_older_than_a_week_are_deleted(queue: Queue) -> None:
    report(queue, {"topic": "old", "success": 1})
    queue.later("6 days")
    report(queue, {"topic": "young", "success": 1})

    assert queue.call("prune_measures") == 0
    queue.later("1 day 1 minute")
    assert queue.call("prune_measures") == 2, "one row of the topic, one of the worker"
    assert topics(queue) == ["young"]


def test_measures_of_workers_are_deleted_too(queue: Queue) -> None:
    report(queue, {"topic": "t", "success": 1}, worker="old")
    queue.later("8 days")
    report(queue, {"topic": "t", "success": 1}, worker="young")

    queue.call("prune_measures")

    assert [row.worker for row in queue.rows("SELECT worker FROM messages.worker_measure")] == ["young"]


def test_a_call_is_bounded_and_takes_the_oldest(queue: Queue) -> None:
    for day in range(3):
        report(queue, {"topic": f"day {day}", "success": 1})
        queue.later("1 day")
    queue.later("9 days")

    assert queue.call("prune_measures", 2) == 4
    assert topics(queue) == ["day 2"]


def test_the_tick_calls_it(queue: Queue) -> None:
    report(queue, {"topic": "old", "success": 1})
    queue.later("8 days")

    queue.rows("SELECT * FROM messages.tick()")

    assert topics(queue) == []
