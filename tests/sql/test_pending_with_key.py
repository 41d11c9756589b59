"""messages.pending_with_key: the one message that waits under a key."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_it_is_the_ready_or_delayed_message_that_was_never_attempted(queue: Queue) -> None:
    queue.publish(key="running")
    queue.claim()
    ready, delayed = queue.publish(key="ready"), queue.publish(key="delayed", wait="1 hour")
    queue.publish("other", key="elsewhere")

    found = {
        key: queue.call("pending_with_key", "t", key) for key in ("ready", "delayed", "running", "elsewhere", "unknown")
    }

    assert found == {"ready": ready, "delayed": delayed, "running": None, "elsewhere": None, "unknown": None}


def test_a_released_message_counts_again_and_a_failed_one_does_not(queue: Queue) -> None:
    released, failed = queue.publish(key="released", max_attempts=2), queue.publish(key="failed", max_attempts=2)
    first, second = queue.claim()
    queue.settle("release", [first])
    queue.settle("retry", [second], ["boom"])

    assert queue.call("pending_with_key", "t", "released") == released
    assert queue.call("pending_with_key", "t", "failed") is None
    assert queue.message(failed) is not None
