"""messages.publish_tick: the message of one tick, and when it is available."""

from __future__ import annotations

from datetime import datetime, timedelta

from tests.sql.queue import Queue

TEN = "2026-11-16 10:00:00+00"


def delays(queue: Queue, *names: str, jitter: str = "1 hour") -> list[timedelta]:
    """Return how long after their tick the messages of some schedules are available."""
    queue.stop_clock("2026-11-16 09:00:00+00")
    for name in names:
        queue.schedule(name, "0 * * * *", topic=name, jitter=jitter)
    queue.stop_clock(TEN)
    queue.call("fire_schedules")
    tick = datetime.fromisoformat(TEN)
    found = {
        row.topic: row.available_at - tick for row in queue.rows("SELECT topic, available_at FROM messages.message")
    }
    return [found[name] for name in names]


def test_without_jitter_it_is_available_at_its_tick(queue: Queue) -> None:
    assert delays(queue, "a", jitter="0") == [timedelta(0)]


def test_jitter_spreads_schedules_over_its_duration(queue: Queue) -> None:
    found = delays(queue, *(f"s{n}" for n in range(40)))

    assert all(timedelta(0) <= each < timedelta(hours=1) for each in found)
    assert len(set(found)) > 35
    assert min(found) < timedelta(minutes=15)
    assert max(found) > timedelta(minutes=45)


def test_jitter_does_not_depend_on_the_session_that_fires_the_tick(queue: Queue) -> None:
    (first,) = delays(queue, "a")
    queue.conn.execute("DELETE FROM messages.schedule; DELETE FROM messages.message")
    (second,) = delays(queue, "a")

    assert first == second > timedelta(0)


def test_jitter_differs_from_tick_to_tick(queue: Queue) -> None:
    queue.stop_clock("2026-11-16 09:00:00+00")
    queue.schedule("a", "0 * * * *", jitter="1 hour", missed="all")
    for hour in range(10, 20):
        queue.stop_clock(f"2026-11-16 {hour}:00:00+00")
        queue.call("fire_schedules")

    found = {
        row.late
        for row in queue.rows("SELECT available_at - (headers ->> 'tick')::timestamptz AS late FROM messages.message")
    }

    assert len(found) > 8


def test_a_missed_tick_is_available_at_once_and_not_in_the_past(queue: Queue) -> None:
    queue.stop_clock("2026-11-16 09:00:00+00")
    queue.schedule("a", "0 * * * *", jitter="1 minute")
    queue.stop_clock("2026-11-16 12:30:00+00")

    queue.call("fire_schedules")

    assert queue.value("SELECT available_at = messages.now() FROM messages.message") is True
