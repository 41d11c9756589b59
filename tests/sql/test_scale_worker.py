"""messages.scale_worker: records how many handlers a worker is to run at once."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.queue import Queue


@pytest.fixture
def daemon(queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 1, "0", ["t"], 10)
    queue.call("touch_worker", "w", '{"listener": "listening"}')


@pytest.mark.usefixtures("daemon")
def test_the_row_of_the_worker_has_the_number_until_it_is_taken_back(queue: Queue) -> None:

    assert queue.call("scale_worker", "w", 3) is True

    assert queue.row("SELECT requested_concurrency AS requested, concurrency FROM messages.worker") == (3, 10)
    recorded = queue.row("SELECT action, target, detail FROM messages.audit")
    assert tuple(recorded) == ("scale_worker", "w", {"concurrency": 3})
    queue.call("scale_worker", "w")
    assert queue.value("SELECT requested_concurrency FROM messages.worker") is None


def test_an_unregistered_worker_is_not_scaled(queue: Queue) -> None:
    assert queue.call("scale_worker", "unregistered", 3) is False
    assert queue.rows("SELECT FROM messages.audit") == []


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("concurrency", [0, -1, 10_001])
def test_a_number_that_no_configuration_may_have_is_refused(queue: Queue, concurrency: int) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="cannot run"):
        queue.call("scale_worker", "w", concurrency)


def test_a_worker_over_http_is_refused(queue: Queue) -> None:
    queue.call("touch_http_worker", "http:t/w", "host", ["t"], 10)

    with pytest.raises(psycopg.errors.InvalidParameterValue, match="claims over HTTP"):
        queue.call("scale_worker", "http:t/w", 3)


def test_a_job_on_spark_which_would_not_read_it_is_refused(queue: Queue) -> None:
    queue.call("register_worker", "spark-1", "host", 1, "0", ["t"], 1000)
    queue.call("touch_worker", "spark-1", '{"engine": "spark", "in_flight": 0}')

    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is a job on Spark"):
        queue.call("scale_worker", "spark-1", 3)

    assert queue.value("SELECT requested_concurrency FROM messages.worker") is None
