"""When the next message of a topic or channel is due."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from psycopg import sql

from tests.sql.queue import Queue

# messages.next_due: how long until the next delayed message, for the timer of a worker that found nothing.


@pytest.fixture(autouse=True)
def stopped_clock(queue: Queue) -> None:
    queue.later("0")


def next_due(queue: Queue, *topics: str) -> float | None:
    due: timedelta | None = queue.call("next_due", list(topics or ["t"]))
    return due if due is None else due.total_seconds()


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


# messages.next_channel_due: when the next message of one topic's channels is due.

DUE = "SELECT extract(epoch FROM messages.next_channel_due('t', messages.now(), %s) - messages.now())::float"


def due_in(queue: Queue, held: bool = False) -> Any:
    return queue.value(DUE, [held])


def test_messages_that_a_claim_held_back_are_skipped(queue: Queue) -> None:
    queue.publish(channel="a", wait="-2 s")
    queue.publish(channel="b", wait="9 s")
    queue.publish(channel="c", wait="-3 s")

    assert due_in(queue, held=True) == 9


@pytest.mark.parametrize(
    ("held", "wait", "looks_in"),
    [(False, "1 hour", 3600), (False, "0.5 s", 0.5), (True, "1 hour", 3600), (True, "0.5 s", 0.5)],
)
def test_it_is_exact_however_many_channels_there_are_and_whatever_was_held_back(
    queue: Queue, held: bool, wait: str, looks_in: float
) -> None:
    queue.conn.execute(
        """
        INSERT INTO messages.message (topic, channel, payload, available_at)
        SELECT 't', 'c' || n, '1', messages.now() + %s::interval FROM generate_series(1, 1100) AS n
        """,
        [wait],
    )

    assert due_in(queue, held) == looks_in


@pytest.mark.parametrize("held", [False, True])
def test_it_reads_from_the_low_water_mark_on(queue: Queue, held: bool) -> None:
    queue.publish(channel="a", wait="3 s")
    queue.publish(channel="b", wait="5 s")
    queue.conn.execute(
        "INSERT INTO messages.low_water (topic, priority, at) VALUES ('t', -1, messages.now() + interval '4 s')"
    )

    assert due_in(queue, held) == 5


@pytest.mark.parametrize("held", ["false", "true"])
def test_it_reads_one_entry_however_many_wait(own_queue: Queue, held: str) -> None:
    own_queue.publish_many(20_000, channel="a", wait="-1 hour")
    own_queue.publish_many(20_000, channel=sql.SQL("'c' || n"), wait="1 hour")

    assert own_queue.buffers(f"SELECT messages.next_channel_due('t', messages.now(), {held})") < 60
