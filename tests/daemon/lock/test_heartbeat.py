"""Locks last as long as the work does, and a worker that loses one is informed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.daemon.locks import LOCKS_ARE_NEVER_ENDED, is_kept
from tests.daemon.process import Daemon, Journal
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


@pytest.mark.long
@pytest.mark.parametrize("handler", ["holding:hold", "holding:hold_in_thread"])
def test_a_handler_may_run_five_times_as_long_as_its_lock(
    start: Start, queue: Queue, journal: Journal, handler: str
) -> None:
    lock_duration = timedelta(seconds=0.8)
    queue.policy("job", lock_duration=lock_duration, max_attempts=5)
    daemon = start({"job": handler}, **LOCKS_ARE_NEVER_ENDED)

    published = queue.publish("job")
    journal.entry("start", published)

    assert is_kept(queue, published, lock_duration, times=4)
    daemon.open_gate()
    archived = eventually(lambda: queue.archived(published))
    assert (archived.result, archived.attempts) == ("success", 1)


@pytest.mark.long
def test_a_message_that_waits_for_a_slot_keeps_its_lock(start: Start, queue: Queue, journal: Journal) -> None:
    queue.policy("job", lock_duration="1 s", max_attempts=5)
    daemon = start({"job": "holding:hold"}, concurrency=1, prefetch=3, **LOCKS_ARE_NEVER_ENDED)
    waiting = queue.publish_many(4, "job")[1:]
    eventually(lambda: all(queue.message(each).claim_id for each in waiting))
    locks = [queue.message(each).lock_expires_at for each in waiting]

    assert is_kept(queue, waiting[0], timedelta(seconds=1))
    eventually(lambda: all(queue.message(each).lock_expires_at > max(locks) + timedelta(seconds=1) for each in waiting))
    daemon.open_gate()

    eventually(lambda: queue.ids() == [])
    assert queue.value("SELECT max(attempts) FROM messages.message_archive") == 1


WAITS = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name LIKE %s"


@pytest.mark.long
def test_a_long_lock_on_the_table_delays_everything_and_costs_no_message_its_lock(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.policy("job", lock_duration="10 s", max_attempts=5)
    daemon = start({"job": "holding:hold", "other": "work:echo"}, **LOCKS_ARE_NEVER_ENDED)
    held = queue.publish("job")
    journal.entry("start", held)
    other = queue.publish("other", wait="3 s")

    with queue.conn.transaction():
        queue.conn.execute("LOCK TABLE messages.message IN ACCESS EXCLUSIVE MODE")
        lock = queue.message(held).lock_expires_at
        for role in ("heartbeat", "claim-"):
            eventually(lambda role=role: queue.rows(WAITS, [f"pgrouse {role}%"]))  # type: ignore[misc]
    eventually(lambda: queue.message(held).lock_expires_at > lock)
    daemon.open_gate()

    assert eventually(lambda: queue.archived(held)).attempts == 1
    assert eventually(lambda: queue.archived(other)).result == "success"


def test_a_cancelled_message_that_waits_for_a_slot_is_never_started(
    start: Start, queue: Queue, journal: Journal
) -> None:
    daemon = start(
        {"job": {"handler": "holding:hold", "concurrency": 3}, "other": "work:echo"}, concurrency=1, prefetch=3
    )
    first, *waiting = queue.publish_many(3, "job")
    eventually(lambda: all(queue.message(each).claim_id for each in waiting))

    queue.call("cancel", waiting)
    for each in waiting:
        daemon.event("message.cancelled", message_id=each)
    daemon.open_gate()

    following = queue.publish_many(5, "job")
    eventually(lambda: queue.ids() == [])
    assert sorted(e["id"] for e in journal.entries("start")) == [first, *following]
