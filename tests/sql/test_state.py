"""The view messages.state: every message with one name for its state."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.sql.queue import Queue


def state(queue: Queue, message_id: int) -> Any:
    return queue.row("SELECT * FROM messages.state WHERE id = %s", [message_id])


def test_a_live_message_is_ready_delayed_running_or_retrying(queue: Queue) -> None:
    delayed = queue.publish(wait="1 hour")
    running, failed, expired, deferred = (queue.publish(max_attempts=2) for _ in range(4))
    claims = queue.claim()
    queue.settle("retry", [claims[1]], ["boom"], [timedelta(hours=1)])
    queue.settle("retry", [claims[2]], ["boom"], [timedelta(hours=1)], result="lock_expired")
    queue.settle("defer", [claims[3]], [timedelta(hours=1)])
    ready = queue.publish()

    states = {m: state(queue, m).state for m in (ready, delayed, running, failed, expired, deferred)}

    assert list(states.values()) == ["ready", "delayed", "running", "retrying", "retrying", "delayed"]


def test_a_running_message_has_its_worker_and_the_end_of_its_lock(queue: Queue) -> None:
    running = queue.publish()
    queue.claim(worker="host-1")

    row = state(queue, running)

    assert (row.locked_by, row.lock_expires_at) == ("host-1", queue.message(running).lock_expires_at)


def test_an_archived_message_has_its_result_as_its_state(queue: Queue) -> None:
    succeeded, rejected = queue.publish(), queue.publish()
    claims = queue.claim()
    queue.settle("complete", claims[:1])
    queue.settle("reject", claims[1:], ["bad"])
    cancelled = queue.publish()
    queue.call("cancel", [cancelled])

    assert [state(queue, m).state for m in (succeeded, rejected, cancelled)] == ["success", "rejected", "cancelled"]
    assert (state(queue, rejected).error, state(queue, rejected).archived_at is None) == ("bad", False)


def test_every_message_is_in_the_view_exactly_once(queue: Queue) -> None:
    published = queue.publish_many(10)
    queue.settle("complete", queue.claim(limit=4))
    queue.claim(limit=3)

    assert [row.id for row in queue.rows("SELECT id FROM messages.state ORDER BY id")] == published
