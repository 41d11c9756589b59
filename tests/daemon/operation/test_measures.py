"""The measures of daemons reach the database.

Each attempt is counted once, whatever handler it had and whatever answer was lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from psycopg.types.json import Jsonb
from structlog.testing import capture_logs

from pgrouse.client.connection.database import Database as Connecting
from pgrouse.client.message import Message
from pgrouse.config import config
from pgrouse.worker.execution.in_flight import InFlight
from pgrouse.worker.loop import heartbeat
from pgrouse.worker.loop.heartbeat import Heartbeat, Registration
from pgrouse.worker.reporting.metrics_recorder import AttemptResult, MetricsRecorder
from pgrouse.worker.reporting.metrics_reporter import MetricsReporter
from tests.daemon.process import Daemon, Journal
from tests.daemon.proxy import Proxy
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]

SUMS = (
    f"SELECT topic, {', '.join(f'sum({name})::int AS {name}' for name in AttemptResult)} "
    "FROM messages.measure GROUP BY topic"
)
# A worker waits to leave the registry for longer than its other statements there may take.
LEAVING = """
    SELECT FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND query LIKE '%%unregister_worker%%'
      AND clock_timestamp() - query_start > interval '0.3 s'
"""
COUNTS = "SELECT topic, waits::int, runs::int FROM messages.latency()"


def results(queue: Queue) -> dict[str, dict[str, int]]:
    """The results of the attempts of each topic, without zeros."""
    return {
        row.topic: {name.value: count for name in AttemptResult if (count := getattr(row, name))}
        for row in queue.rows(SUMS)
    }


@pytest.mark.long
def test_each_attempt_is_counted_once_however_it_runs_and_ends(start: Start, queue: Queue, journal: Journal) -> None:
    queue.conn.execute("CREATE TABLE effect (message_id bigint)")
    for topic in ("loop", "thread"):
        queue.policy(topic, max_attempts=2, backoff={"kind": "none"})
    queue.policy("slow", timeout="0.2 s")
    daemon = start(
        {
            "loop": "work:act",
            "thread": "work:act_in_thread",
            "child": {"handler": "work:act_in_process", "isolation": "process", "concurrency": 1},
            "store": "effects:store",
            "store_in_thread": "effects:store_in_thread",
            "first": {"handler": "work:echo", "ack_policy": "ack_first"},
            "batch": {"handler": "batches:settle_singly", "batch_size": 10},
            "batch_first": {"handler": "batches:settle_singly_in_thread", "batch_size": 10, "ack_policy": "ack_first"},
            "slow": "holding:hold",
        }
    )
    for topic in ("loop", "thread", "child"):
        for does in ("return", "return", "reject", "fail"):
            queue.publish(topic, payload=Jsonb({"do": does}))
    for topic in ("loop", "thread"):
        queue.publish(topic, payload=Jsonb({"do": "raise"}))
    for topic in ("store", "store_in_thread", "first", "slow"):
        queue.publish(topic)
    for topic in ("batch", "batch_first"):
        queue.publish_many(5, topic, payload=Jsonb("complete"))

    eventually(lambda: queue.ids() == [], within_s=60)
    assert daemon.stop() == 0

    ends = {"success": 2, "rejected": 1, "failed": 1}
    assert results(queue) == {
        "loop": {**ends, "failed": 2, "retried": 1},
        "thread": {**ends, "failed": 2, "retried": 1},
        "child": ends,
        "store": {"success": 1},
        "store_in_thread": {"success": 1},
        "first": {"success": 1},
        "batch": {"success": 5},
        "batch_first": {"success": 5},
        "slow": {"lock_expired": 1},
    }
    counted = {row.topic: row for row in queue.rows(COUNTS)}
    assert {topic: row.waits for topic, row in counted.items()} == {
        topic: sum(each.values()) for topic, each in results(queue).items()
    }
    assert [counted[topic].runs for topic in ("loop", "thread", "child", "store", "first", "slow")] == [
        6,
        6,
        4,
        1,
        1,
        1,
    ]
    assert 1 <= counted["batch"].runs <= 5, "a batch counts once"
    (slow,) = queue.rows("SELECT run_p50_s FROM messages.latency(p_topic => 'slow')")
    assert 0.14 < slow.run_p50_s < 20, "it was stopped after 0.2 s"


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a heartbeat update its worker, and report, each time it wakes up."""
    for name in ("REGISTRY_INTERVAL_S", "REGISTRY_RETRY_S", "MAX_PAUSE_S", "LAST_REPORTS_TIMEOUT_S"):
        monkeypatch.setattr(heartbeat, name, 0.05)


MESSAGE = Message(1, 1, "job", None, None, 5, 1, 1, "1", None, None, None, 30.0, None, 0.0, 0.0)


def beat(dsn: str, metrics: MetricsRecorder, until: Callable[[], object], in_flight: InFlight | None = None) -> int:
    """Run a heartbeat with these metrics until a condition is true, then end it.

    Return how many connections it took.
    """

    async def run() -> int:
        db = Connecting(config.DatabaseSettings(dsn=dsn), "w")
        worker = Registration("w", "host", 1, "1.0", ["job"], 10)
        thread = Heartbeat(db, in_flight or InFlight(), lambda _: None, worker, dict, MetricsReporter(metrics))
        thread.start()
        try:
            await asyncio.to_thread(eventually, until)
        finally:
            await asyncio.to_thread(thread.stop)
        return db.opened["heartbeat"]

    return asyncio.run(run())


def test_a_report_whose_answer_was_lost_is_repeated_and_counted_once(proxy: Proxy, queue: Queue, often: None) -> None:
    metrics = MetricsRecorder()
    metrics.record_end([MESSAGE] * 3, AttemptResult.SUCCESS)
    # Its commit was not confirmed.
    proxy.lose_the_answer_to("COMMIT", after="record_measures")

    def lost_and_then_some() -> bool:
        if not proxy.answer_was_lost.is_set():
            return False
        if results(queue) == {"job": {"success": 3}}:
            metrics.record_end([MESSAGE], AttemptResult.LOST)
        return results(queue).get("job", {}).get("lost", 0) > 0

    beat(proxy.dsn, metrics, lost_and_then_some)

    assert results(queue)["job"]["success"] == 3
    assert results(queue)["job"]["lost"] == metrics.for_topic("job").results[AttemptResult.LOST], (
        "the last report comes with the end"
    )


def test_a_refused_report_costs_no_worker_heartbeat(database: Database, queue: Queue, often: None) -> None:
    queue.conn.execute("ALTER FUNCTION messages.record_measures RENAME TO gone")
    metrics = MetricsRecorder()
    metrics.record_end([MESSAGE], AttemptResult.SUCCESS)
    seen: set[Any] = set()

    def has_been_seen_often() -> bool:
        seen.update(queue.rows("SELECT seen_at FROM messages.worker"))
        return len(seen) > 3

    assert beat(database.dsn, metrics, has_been_seen_often) == 1, "its beats have failed"
    assert results(queue) == {}


@pytest.mark.long
def test_locked_rows_delay_a_report_and_no_worker_heartbeat(
    database: Database, queue: Queue, often: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "REGISTRY_TIMEOUT_MS", 250)
    metrics = MetricsRecorder()
    metrics.record_end([MESSAGE], AttemptResult.SUCCESS)
    seen: set[Any] = set()
    with database.connect() as holder:
        holder.execute("BEGIN; LOCK TABLE messages.measure")

        def signs_while_it_is_held_and_reports_then() -> bool:
            seen.update(queue.rows("SELECT seen_at FROM messages.worker"))
            if len(seen) < 4:
                return False
            holder.execute("ROLLBACK")
            return results(queue) == {"job": {"success": 1}}

        assert beat(database.dsn, metrics, signs_while_it_is_held_and_reports_then) == 1, "its beats have failed"


def test_measures_after_a_refused_report_are_reported_at_the_end(
    database: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "REGISTRY_INTERVAL_S", 3600.0)
    metrics = MetricsRecorder()
    metrics.record_end([MESSAGE], AttemptResult.SUCCESS)
    with database.connect() as holder, capture_logs() as logged:
        holder.execute("BEGIN; LOCK TABLE messages.measure")

        def refused() -> bool:
            if not logged:
                return False
            holder.execute("ROLLBACK")
            metrics.record_end([MESSAGE] * 2, AttemptResult.REJECTED)
            return True

        beat(database.dsn, metrics, refused)

    assert [entry["event"] for entry in logged] == ["metrics.report_failed"]
    assert results(queue) == {"job": {"success": 1, "rejected": 2}}


def test_a_worker_leaves_the_registry_of_a_slow_server(
    database: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "REGISTRY_TIMEOUT_MS", 100)
    monkeypatch.setattr(heartbeat, "DEREGISTER_TIMEOUT_S", 60.0)
    with database.connect() as holder, ThreadPoolExecutor(1) as thread:
        holder.execute("BEGIN")

        def give_it_back() -> None:
            eventually(lambda: queue.rows(LEAVING))
            holder.execute("ROLLBACK")

        def held() -> bool:
            return bool(holder.execute("SELECT FROM messages.worker FOR UPDATE").rowcount)

        beat(database.dsn, MetricsRecorder(), lambda: held() and thread.submit(give_it_back))

    assert queue.rows("SELECT FROM messages.worker") == []
