"""prune_pauses: deletes rows that an expired pause left."""

from __future__ import annotations

from collections.abc import Callable

from tests.sql.queue import Listener, Queue


def channels(queue: Queue) -> list[str]:
    return [row.channel for row in queue.rows("SELECT channel FROM messages.channel ORDER BY channel")]


def test_an_expired_pause_leaves_no_row(queue: Queue) -> None:
    queue.call("pause", "mail", channel="over", resume_in="1 minute")
    queue.call("pause", "mail", channel="paused")
    queue.call("pause", "mail", channel="paused longer", resume_in="1 hour")
    queue.later("2 minutes")

    assert queue.call("prune_pauses") == 1

    assert channels(queue) == ["paused", "paused longer"]


def test_a_channel_with_limits_stays(queue: Queue) -> None:
    queue.call("pause", "mail", channel="acme", resume_in="1 minute")
    queue.conn.execute("UPDATE messages.channel SET concurrency = 2")
    queue.later("2 minutes")
    assert queue.call("prune_pauses") == 0
    queue.call("pause", "mail", channel="over", resume_in="1 minute")
    queue.later("2 minutes")

    assert queue.call("prune_pauses") == 1

    assert channels(queue) == ["acme"]


def test_a_row_that_another_session_is_writing_stays(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.channel (topic, channel) VALUES ('mail', 'acme')")

    assert queue.call("prune_pauses") == 0


def test_nothing_is_notified_if_nothing_is_deleted(queue: Queue, listen: Callable[..., Listener]) -> None:
    listener = listen("topic_changed")

    queue.call("prune_pauses")

    assert listener.received() == []


def test_the_tick_calls_it(queue: Queue) -> None:
    queue.call("pause", "mail", channel="over", resume_in="1 minute")
    queue.later("2 minutes")

    queue.rows("SELECT * FROM messages.tick('hand')")

    assert channels(queue) == []
