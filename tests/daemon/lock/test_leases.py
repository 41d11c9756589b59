"""Longer locks: a handler that extends its lock, and late settles."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.daemon.locks import LOCKS_ARE_NEVER_ENDED
from tests.daemon.process import Daemon, Journal
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]

HANDLERS = {
    "async": "reporting:extend",
    "thread": "reporting:extend_in_thread",
    "process": {"handler": "reporting:extend_in_process", "isolation": "process", "concurrency": 1},
}
LEFT = """
  SELECT extract(epoch FROM lock_expires_at - clock_timestamp())::float8 AS s
  FROM messages.message WHERE id = %s AND claim_id IS NOT NULL"""
HAS_RUN_OUT = "SELECT FROM messages.message WHERE id = %s AND lock_expires_at < clock_timestamp()"


def left_s(queue: Queue, published: int) -> float:
    return max((float(row.s) for row in queue.rows(LEFT, [published])), default=0.0)


@pytest.mark.parametrize("where", list(HANDLERS))
def test_a_handler_extends_its_own_lock_and_no_other(start: Start, queue: Queue, journal: Journal, where: str) -> None:
    queue.policy("*", lock_duration="5 s")
    daemon = start({"job": HANDLERS[where], "other": "holding:hold"}, **LOCKS_ARE_NEVER_ENDED)
    other, published = queue.publish("other"), queue.publish("job", payload=Jsonb(600))

    journal.entry("extended", published)

    eventually(lambda: 300 < left_s(queue, published) <= 600)
    assert left_s(queue, other) <= 5
    daemon.open_gate()
    assert eventually(lambda: queue.archived(published)).result == "success"


def test_an_extended_lock_outlasts_a_frozen_worker(start: Start, queue: Queue, journal: Journal) -> None:
    queue.policy("*", lock_duration="0.5 s", max_attempts=1)
    # It ends no lock, neither of the two: another daemon does, as soon as this one is frozen.
    frozen = start({"job": "reporting:extend"}, name="frozen", maintenance_interval="1h")
    published, plain = queue.publish("job", payload=Jsonb(600)), queue.publish("job", payload=Jsonb(0.1))
    journal.entry("extended", published)
    journal.entry("extended", plain)

    os.kill(frozen.pid, signal.SIGSTOP)
    start({"unrelated": "work:echo"}, name="ticks")

    assert eventually(lambda: queue.archived(plain)).result == "lock_expired"
    assert queue.message(published).claim_id is not None
    os.kill(frozen.pid, signal.SIGCONT)
    frozen.open_gate()
    assert eventually(lambda: queue.archived(published)).result == "success"


def test_a_handler_that_lost_its_lock_gets_an_error_when_it_extends_it(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.policy("job", lock_duration="1 hour")
    daemon = start({"job": "reporting:extend_at_gate"}, maintenance_interval="1h")
    published = queue.publish("job", payload=Jsonb(600))
    journal.entry("start", published)
    queue.conn.execute("UPDATE messages.message SET claim_id = claim_id + 1 WHERE id = %s", [published])

    daemon.open_gate("extend")

    assert "is not this worker's any more" in journal.entry("lost", published)["error"]
    assert left_s(queue, published) > 1800
    daemon.event("message.lock_lost", message_id=published)


@pytest.fixture
def late(start: Start, queue: Queue, journal: Journal) -> Callable[[], Any]:
    """Freezes a worker until its lock has expired, without a daemon that ends it, and lets it settle after that."""

    def late() -> int:
        # No tick runs during the test.
        daemon = start({"job": "holding:hold_in_thread"}, maintenance_interval="1h")
        published = queue.publish("job")
        journal.entry("start", published)
        os.kill(daemon.pid, signal.SIGSTOP)
        eventually(lambda: queue.rows(HAS_RUN_OUT, [published]))
        daemon.open_gate()
        os.kill(daemon.pid, signal.SIGCONT)
        journal.entry("end", published)
        return published

    return late


def test_a_late_settle_succeeds_until_the_lock_is_ended(queue: Queue, late: Callable[[], int]) -> None:
    queue.policy("job", lock_duration="1 s")

    published = late()

    assert eventually(lambda: queue.archived(published)).result == "success"


def test_a_late_settle_fails_under_strict_lock_and_the_lock_expires(
    queue: Queue, fleet: Any, late: Callable[[], int]
) -> None:
    queue.policy("job", lock_duration="1 s", strict_lock=True)

    published = late()

    fleet.daemons[0].event("message.lock_lost", message_id=published)
    assert queue.message(published).claim_id is not None
    queue.call("expire_locks")
    assert queue.archived(published).result == "lock_expired"
