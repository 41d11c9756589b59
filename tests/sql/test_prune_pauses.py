"""prune_pauses: rows that a pause left behind."""

from __future__ import annotations

from collections.abc import Callable

from tests.sql.queue import Listener, Queue


def channels(queue: Queue) -> list[str]:
    return [row.channel for row in queue.rows("SELECT channel FROM messages.channel ORDER BY channel")]


def test_a_pause_that_is_over_leaves_no_row(queue: Queue) -> None:
    queue.call("pause", "mail", channel="over", resume_in="1 minute")
    queue.call("pause", "mail", channel="paused")
    queue.call("pause", "mail", channel="paused longer", resume_in="1 hour")
    queue.later("2 minutes")

    assert queue.call("prune_pauses") == 1

    assert channels(queue) == ["paused", "paused longer"]


def test_a_channel_that_has_limits_of_its_own_stays(queue: Queue) -> None:
    queue.call("pause", "mail", channel="acme", resume_in="1 minute")
    queue.conn.execute("UPDATE messages.channel SET concurrency = 2")
    queue.later("2 minutes")

    assert queue.call("prune_pauses") == 0

    assert channels(queue) == ["acme"]


def test_a_row_that_somebody_is_about_to_fill_stays(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.channel (topic, channel) VALUES ('mail', 'acme')")

    assert queue.call("prune_pauses") == 0


def test_nothing_is_notified_when_there_is_nothing_to_forget(queue: Queue, listen: Callable[..., Listener]) -> None:
    listener = listen("topic_changed")

    queue.call("prune_pauses")

    assert listener.received() == []


def test_the_tick_sees_to_it(queue: Queue) -> None:
    queue.call("pause", "mail", channel="over", resume_in="1 minute")
    queue.later("2 minutes")

    queue.rows("SELECT * FROM messages.tick('hand')")

    assert channels(queue) == []
