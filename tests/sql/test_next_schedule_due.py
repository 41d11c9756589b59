"""messages.next_schedule_due: how long until the next tick of a schedule."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.sql.queue import Queue


@pytest.fixture
def queue(queue: Queue) -> Queue:
    """The clock is stopped at nine o'clock."""
    queue.stop_clock("2026-11-16 09:00:00+00")
    return queue


def test_without_a_schedule_it_is_null(queue: Queue) -> None:
    assert queue.call("next_schedule_due") is None


def test_it_is_the_time_until_the_first_tick_of_any(queue: Queue) -> None:
    queue.schedule("a", "30 * * * *")
    queue.schedule("b", "10 * * * *")

    assert queue.call("next_schedule_due") == timedelta(minutes=10)


def test_a_due_tick_is_zero_or_less(queue: Queue) -> None:
    queue.schedule("a", "30 * * * *")
    queue.later("40 minutes")

    assert queue.call("next_schedule_due") == timedelta(minutes=-10)


def test_a_paused_schedule_does_not_count(queue: Queue) -> None:
    queue.schedule("a", "30 * * * *")
    queue.call("pause_schedule", "a")

    assert queue.call("next_schedule_due") is None


def test_for_a_failed_schedule_it_is_the_time_until_its_next_try(queue: Queue) -> None:
    queue.schedule("a", "30 * * * *")
    queue.conn.execute("UPDATE messages.schedule SET retry_at = messages.now() + interval '42 minutes'")

    assert queue.call("next_schedule_due") == timedelta(minutes=42)
