"""Locks last as long as the work does, and whoever loses one is told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from psycopg.types.json import Jsonb

from tests.daemon.process import Daemon, Journal, now
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


@pytest.mark.parametrize("handler", ["holding:nap", "holding:nap_in_thread"])
def test_a_handler_may_run_five_times_as_long_as_its_lock(
    start: Start, queue: Queue, journal: Journal, handler: str
) -> None:
    queue.policy("job", lock_for="0.8 s", max_attempts=5)
    start({"job": handler})

    published = queue.publish("job", payload=Jsonb(4))

    archived = eventually(lambda: queue.archived(published))
    assert (archived.result, archived.attempts) == ("success", 1)


def test_what_waits_for_its_turn_keeps_its_lock_too(start: Start, queue: Queue, journal: Journal) -> None:
    queue.policy("job", lock_for="1 s", max_attempts=5)
    daemon = start({"job": "holding:hold"}, concurrency=1, prefetch=3)
    waiting = queue.publish_many(4, "job")[1:]
    locks = eventually(lambda: [row.lock_expires_at for row in map(queue.message, waiting) if row.claim_id])

    eventually(lambda: all(queue.message(each).lock_expires_at > max(locks) + timedelta(seconds=2) for each in waiting))
    daemon.open_gate()

    eventually(lambda: queue.ids() == [])
    assert queue.value("SELECT max(attempts) FROM messages.message_archive") == 1


def test_a_long_lock_on_the_table_delays_everything_and_costs_no_message_its_lock(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.policy("job", lock_for="4 s", max_attempts=5)
    daemon = start({"job": "holding:hold", "other": "work:echo"})
    held = queue.publish("job")
    journal.entry("start", held)
    other = queue.publish("other", wait="1 s")

    with queue.conn.transaction():
        queue.conn.execute("LOCK TABLE messages.message IN ACCESS EXCLUSIVE MODE")
        began = now()
        eventually(lambda: now() - began > 3)
    daemon.open_gate()

    assert eventually(lambda: queue.archived(held)).attempts == 1
    assert eventually(lambda: queue.archived(other)).result == "success"


@pytest.mark.parametrize("handler", ["holding:hold", "holding:hold_in_thread"])
def test_cancelling_a_running_message_stops_its_handler_promptly(
    start: Start, queue: Queue, journal: Journal, handler: str
) -> None:
    daemon = start({"job": handler})
    published = queue.publish("job")
    journal.entry("start", published)

    began = now()
    queue.call("cancel", [published])

    daemon.event("message.lock_lost", message_id=published)
    if handler == "holding:hold":
        assert journal.entry("cancelled", published)["at"] - began < 1
    assert queue.archived(published).result == "cancelled"


def test_a_cancelled_message_that_waits_for_its_turn_is_never_started(
    start: Start, queue: Queue, journal: Journal
) -> None:
    daemon = start(
        {"job": {"handler": "holding:hold", "concurrency": 3}, "other": "work:echo"}, concurrency=1, prefetch=3
    )
    first, *waiting = queue.publish_many(3, "job")
    eventually(lambda: all(queue.message(each).claim_id for each in waiting))

    queue.call("cancel", waiting)
    for each in waiting:
        daemon.event("message.lock_lost", message_id=each)
    daemon.open_gate()

    following = queue.publish_many(5, "job")
    eventually(lambda: queue.ids() == [])
    assert sorted(e["id"] for e in journal.entries("start")) == [first, *following]
