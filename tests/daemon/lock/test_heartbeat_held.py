"""A row that the heartbeat updates is locked by an open transaction.

Message locks are still extended, on the same connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from pgrouse.client.connection.database import Database as Connecting
from pgrouse.client.message import Message
from pgrouse.config import config
from pgrouse.worker.execution.in_flight import InFlight
from pgrouse.worker.loop import heartbeat
from pgrouse.worker.loop.heartbeat import Heartbeat, Registration
from pgrouse.worker.reporting.metrics_recorder import AttemptResult, MetricsRecorder
from pgrouse.worker.reporting.metrics_reporter import MetricsReporter
from tests.daemon.locks import is_in_time
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

LOCK_S = 0.9
EXTENDED = "SELECT lock_expires_at FROM messages.message"
SUCCESSES = "SELECT coalesce(sum(success), 0)::int FROM messages.measure"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REGISTRY_INTERVAL_S", "REGISTRY_RETRY_S"):
        monkeypatch.setattr(heartbeat, name, 0.05)


def claimed_message(queue: Queue) -> Message:
    """Publish and claim a message with a short lock, as the worker w."""
    queue.policy("job", lock_duration=f"{LOCK_S} s")
    queue.publish("job")
    row = queue.claim_one("job")
    return Message(row.id, row.claim_id, "job", None, None, 5, 1, 1, "1", None, None, None, LOCK_S, None, 0.0, 0.0)


def beat(dsn: str, message: Message, until: Callable[[], object], lost: list[Message]) -> int:
    """Run a heartbeat with this message in flight until a condition is true.

    Return the number of connections it took.
    """

    async def run() -> int:
        in_flight, metrics = InFlight(), MetricsRecorder()
        in_flight.add([message], time.monotonic())
        metrics.record_end([message], AttemptResult.SUCCESS)
        db = Connecting(config.DatabaseSettings(dsn=dsn), "w")
        worker = Registration("w", "host", 1, "1.0", ["job"], 10)
        thread = Heartbeat(db, in_flight, lost.extend, worker, dict, MetricsReporter(metrics))
        thread.start()
        try:
            await asyncio.to_thread(eventually, until)
        finally:
            await asyncio.to_thread(thread.stop)
        return db.opened["heartbeat"]

    return asyncio.run(run())


STARTED = "SELECT messages.register_worker('w', 'host', 1, '1.0', ARRAY['job'], 10)"


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "holds"),
    [
        (STARTED, "SELECT messages.drain_worker('w')"),
        (STARTED, "LOCK TABLE messages.worker"),
        (STARTED, "SELECT messages.unregister_worker('w')"),
        ("SELECT", STARTED),
    ],
    ids=["drain_worker", "lock_table", "unregister_worker", "register_worker"],
)
def test_locks_are_extended_in_time_and_the_report_is_written_once_afterwards(
    database: Database, queue: Queue, before: str, holds: str
) -> None:
    message, lost = claimed_message(queue), list[Message]()
    queue.conn.execute(before)
    seen: set[datetime] = set()
    with database.connect() as holder:
        holder.execute("BEGIN")
        holder.execute(holds)

        def extended_while_locked_and_reported_then() -> bool:
            seen.add(queue.value(EXTENDED))
            if len(seen) < 6:
                return False
            holder.execute("COMMIT")
            return bool(queue.value(SUCCESSES))

        connections = beat(database.dsn, message, extended_while_locked_and_reported_then, lost)

    assert is_in_time(seen, timedelta(seconds=LOCK_S))
    assert (connections, lost, queue.value(SUCCESSES)) == (1, [], 1)
