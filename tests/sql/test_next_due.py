"""messages.next_due: how long until the next delayed message, for the timer of a worker that found nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.sql.queue import Queue


@pytest.fixture(autouse=True)
def stopped_clock(queue: Queue) -> None:
    queue.later("0")


def next_due(queue: Queue, *topics: str) -> float | None:
    due: timedelta | None = queue.call("next_due", list(topics or ["t"]))
    return due if due is None else due.total_seconds()


def test_in_an_empty_queue_it_is_null(queue: Queue) -> None:
    assert next_due(queue) is None


@pytest.mark.parametrize("channel", [None, "c"])
def test_it_is_the_time_to_the_next_delayed_message(queue: Queue, channel: str | None) -> None:
    for wait in ("5 minutes", "61.5 s", "1 hour"):
        queue.publish(wait=wait, channel=channel)

    assert next_due(queue) == 61.5


def test_priorities_channels_and_topics_all_count(queue: Queue) -> None:
    queue.publish("a", wait="10 minutes", priority=0)
    queue.publish("a", wait="9 minutes", priority=9)
    assert next_due(queue, "a", "b", "c") == 540

    queue.publish("b", wait="8 minutes", channel="z")
    assert next_due(queue, "a", "b", "c") == 480

    queue.publish("c", wait="7 minutes", channel="z", priority=9)
    assert next_due(queue, "a", "b", "c") == 420


def test_other_topics_do_not_count(queue: Queue) -> None:
    queue.publish("a", wait="1 minute")

    assert next_due(queue, "b") is None


@pytest.mark.parametrize("channel", [None, "c"])
def test_a_due_message_returns_zero_or_less(queue: Queue, channel: str | None) -> None:
    queue.publish(wait="1 hour")
    queue.publish(wait="-5 s", channel=channel)

    due = next_due(queue)

    assert due is not None
    assert due <= 0


def test_running_messages_do_not_count(queue: Queue) -> None:
    queue.publish()
    queue.claim()

    assert next_due(queue) is None


def test_a_retried_message_counts(queue: Queue) -> None:
    queue.publish(max_attempts=2)
    queue.settle("retry", queue.claim(), ["boom"], [timedelta(seconds=42)])

    assert next_due(queue) == 42


def test_a_timer_set_by_it_finds_the_message(queue: Queue) -> None:
    published = queue.publish(wait="1.234567 s")

    queue.later(f"{next_due(queue)} s")

    assert [c.id for c in queue.claim()] == [published]


def test_with_a_backlog_it_reads_a_few_pages(own_queue: Queue) -> None:
    own_queue.publish_many(20_000, channel="c")
    own_queue.publish_many(20_000, wait="1 hour")

    assert own_queue.buffers("SELECT messages.next_due(ARRAY['t'])") < 80
