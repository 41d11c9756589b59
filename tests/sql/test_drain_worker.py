"""messages.drain_worker: records that a worker is asked to stop, by whom and since when."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.queue import Queue


def test_the_row_of_the_worker_has_the_user_and_the_time(queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 1, "0", ["t"], 1)
    queue.row("SELECT set_config('messages.actor', 'ana', false)")

    assert queue.call("drain_worker", "w") is True

    first = queue.row("SELECT * FROM messages.worker")
    assert first.drain_asked_by == "ana"
    recorded = queue.row("SELECT * FROM messages.audit")
    assert (recorded.actor, recorded.action, recorded.target) == ("ana", "drain_worker", "w")
    queue.call("drain_worker", "w")
    assert queue.value("SELECT drain_asked_at FROM messages.worker") == first.drain_asked_at


def test_an_unregistered_worker_is_not_asked(queue: Queue) -> None:
    assert queue.call("drain_worker", "unregistered") is False


def test_a_job_on_spark_which_would_not_read_it_is_refused(queue: Queue) -> None:
    queue.call("register_worker", "spark-1", "host", 1, "0", ["t"], 1000)
    queue.call("touch_worker", "spark-1", '{"engine": "spark", "in_flight": 0}')

    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is a job on Spark"):
        queue.call("drain_worker", "spark-1")

    assert queue.value("SELECT drain_asked_at FROM messages.worker") is None


def test_a_worker_over_http_is_asked(queue: Queue) -> None:
    queue.call("touch_http_worker", "http:t/w", "host", ["t"], 10)

    assert queue.call("drain_worker", "http:t/w") is True
