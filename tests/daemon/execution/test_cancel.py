"""From messages.cancel to the handler: it is notified at once that its message was cancelled, in every executor."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.daemon.process import AT_ONCE_S, Daemon, Journal, now
from tests.server.alive import lives
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


@pytest.fixture(autouse=True)
def _long_locks(queue: Queue) -> None:
    """Make a heartbeat too slow to detect it in time."""
    queue.policy("*", lock_duration="1 hour")


def test_a_coroutine_is_cancelled_at_its_next_await(start: Start, queue: Queue, journal: Journal) -> None:
    start({"job": "holding:hold"})
    published = queue.publish("job")
    journal.entry("start", published)

    began = now()
    queue.call("cancel", [published], "no longer wanted")

    assert journal.entry("cancelled", published)["at"] - began < AT_ONCE_S
    assert (queue.archived(published).result, queue.archived(published).error) == (
        "cancelled",
        "cancelled: no longer wanted",
    )


def test_a_thread_sees_its_cancellation_when_it_checks(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": "holding:hold_in_thread_until_cancelled"})
    published = queue.publish("job")
    journal.entry("start", published)

    began = now()
    queue.call("cancel", [published])

    seen = journal.entry("saw cancelled", published)
    assert (seen["at"] - began < AT_ONCE_S, seen["lost"]) == (True, True)
    assert queue.archived(published).result == "cancelled"
    assert daemon.stop() == 0


@pytest.mark.long
def test_a_child_is_killed_and_the_next_message_gets_a_new_one(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": {"handler": "holding:hold_in_process", "isolation": "process", "concurrency": 1}})
    published = queue.publish("job")
    child = journal.entry("start", published)["pid"]

    began = now()
    queue.call("cancel", [published])
    eventually(lambda: not lives(child))
    took = now() - began
    daemon.open_gate()
    following = queue.publish("job")

    assert took < AT_ONCE_S
    assert eventually(lambda: queue.archived(following)).result == "success"
    assert queue.archived(published).result == "cancelled"


def test_only_the_handler_of_that_message_is_stopped(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": "holding:hold"})
    first, second = queue.publish_many(2, "job")
    journal.entry("start", first)
    journal.entry("start", second)

    queue.call("cancel", [first])
    journal.entry("cancelled", first)
    daemon.open_gate()

    assert eventually(lambda: queue.archived(second)).result == "success"
    assert journal.entries("cancelled", second) == []


@pytest.mark.long
def test_the_next_heartbeat_reports_a_cancellation_whose_notification_was_lost(
    start: Start, queue: Queue, journal: Journal
) -> None:
    """As behind a pooler: heartbeats come at each third of the lock."""
    queue.policy("job", lock_duration="3 s")
    start({"job": "holding:hold"})
    published = queue.publish("job")
    journal.entry("start", published)

    # This does what cancel does, without its notification.
    began = now()
    queue.conn.execute(
        "SELECT messages.archive(ARRAY[id], ARRAY[claim_id], 'cancelled', NULL, NULL, 'an operator') "
        "FROM messages.message"
    )

    assert journal.entry("cancelled", published)["at"] - began < AT_ONCE_S
