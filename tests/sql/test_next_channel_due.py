"""messages.next_channel_due: when the next message of one topic's channels is due."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import sql

from tests.sql.queue import Queue

DUE = "SELECT extract(epoch FROM messages.next_channel_due('t', messages.now(), %s) - messages.now())::float"


@pytest.fixture(autouse=True)
def stopped_clock(queue: Queue) -> None:
    queue.later("0")


def due_in(queue: Queue, held: bool = False) -> Any:
    return queue.value(DUE, [held])


@pytest.mark.parametrize("held", [False, True])
def test_without_waiting_messages_in_a_channel_nothing_is_due(queue: Queue, held: bool) -> None:
    queue.publish(wait="-1 s")
    queue.publish("u", channel="a")
    queue.publish(channel="b")
    queue.claim()

    assert due_in(queue, held) is None


@pytest.mark.parametrize("held", [False, True])
def test_it_is_the_first_of_all_channels_and_priorities(queue: Queue, held: bool) -> None:
    for channel, priority, wait in (("a", 5, "9 s"), ("b", 0, "8 s"), ("b", 9, "7 s"), ("c", 5, "10 s")):
        queue.publish(channel=channel, priority=priority, wait=wait)

    assert due_in(queue, held) == 7


def test_a_due_message_returns_zero_or_less(queue: Queue) -> None:
    queue.publish(channel="a", wait="9 s")
    queue.publish(channel="b", wait="-2 s")

    assert due_in(queue) <= 0


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
