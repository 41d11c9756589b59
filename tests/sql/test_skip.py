"""messages.skip: ends a waiting message so that those behind it can run."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_a_skipped_message_is_dead_with_the_reason_and_can_be_redriven(queue: Queue) -> None:
    published = queue.publish()

    assert queue.call("skip", [published], "its order was deleted") == [published]

    assert (queue.archived(published).result, queue.archived(published).error) == (
        "failed",
        "skipped: its order was deleted",
    )
    assert queue.claim() == []


def test_the_channel_continues_after_a_skipped_first_message(queue: Queue) -> None:
    queue.policy(ordered=True, max_attempts=5, backoff={"kind": "constant", "base": "1 hour"})
    first, second = queue.publish_many(2, channel="c")
    queue.settle("retry", queue.claim(), ["boom"])
    assert queue.claim() == []

    queue.call("skip", [first])

    assert [c.id for c in queue.claim()] == [second]


def test_a_running_message_is_not_skipped(queue: Queue) -> None:
    published = queue.publish()
    queue.claim()

    assert queue.call("skip", [published]) == []
    assert queue.message(published) is not None


def test_unknown_messages_are_ignored(queue: Queue) -> None:
    assert queue.call("skip", [42]) == []
