"""messages.oldest_ready: since when the oldest ready message of a topic waits."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.sql.queue import Queue


@pytest.fixture(autouse=True)
def _stopped(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")


def age(queue: Queue) -> timedelta | None:
    found: timedelta | None = queue.value("SELECT messages.now() - messages.oldest_ready('t')")
    return found


@pytest.mark.parametrize("channel", [None, "c"])
def test_it_is_the_oldest_of_all_priorities(queue: Queue, channel: str | None) -> None:
    for priority, wait in ((9, "-3 minutes"), (0, "-1 minute"), (5, "-2 minutes")):
        queue.publish(priority=priority, wait=wait, channel=channel)
    queue.publish("other", wait="-1 hour")

    assert age(queue) == timedelta(minutes=3)


def test_delayed_and_locked_messages_are_not_ready(queue: Queue) -> None:
    queue.publish(wait="-1 minute")
    queue.claim()
    queue.publish(wait="1 minute")
    queue.publish(wait="1 minute", channel="c")

    assert age(queue) is None


def test_it_reads_a_few_pages_however_many_messages_there_are(queue: Queue) -> None:
    queue.publish_many(5_000, wait="-1 minute")
    queue.publish_many(5_000, wait="1 hour", priority=3)
    queue.publish_many(5_000, wait="-1 minute", channel="c")
    queue.conn.execute("ANALYZE messages.message")

    assert queue.buffers("SELECT messages.oldest_ready('t')") < 150
