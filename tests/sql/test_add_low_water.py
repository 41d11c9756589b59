"""messages.add_low_water: the directory of the places that low-water marks are kept for."""

from __future__ import annotations

from typing import Any

from tests.sql.queue import Queue


def note(queue: Queue, priority: int = 5) -> None:
    queue.conn.execute("SELECT messages.add_low_water('t', %s::smallint)", [priority])


def places(queue: Queue) -> list[Any]:
    return [tuple(row) for row in queue.rows("SELECT topic, priority, at FROM messages.low_water ORDER BY 1, 2")]


def test_a_new_place_has_no_mark(queue: Queue) -> None:
    note(queue)

    assert places(queue) == [("t", 5, None)]


def test_a_place_that_is_there_keeps_its_mark(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.low_water (topic, priority, at) VALUES ('t', 5, '2026-01-01')")

    note(queue)

    assert queue.value("SELECT at = '2026-01-01' FROM messages.low_water") is True


def test_who_notes_while_another_claim_does_is_not_kept_waiting(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        note(queue)

        other.conn.execute("SET lock_timeout = '1s'")
        note(other)
        note(other, 6)

    assert places(queue) == [("t", 5, None)]


def test_a_claim_in_channels_notes_one_place_for_all_of_them(queue: Queue) -> None:
    for channel in "ab":
        for priority in (0, 5):
            queue.publish(channel=channel, priority=priority)

    queue.claim()

    assert places(queue) == [("t", -1, None)]
