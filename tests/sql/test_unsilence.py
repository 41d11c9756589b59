"""messages.unsilence: ends a silence before its time."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_it_ends_it_once_and_notes_it(queue: Queue) -> None:
    number = queue.call("silence", topic="t", **{"for": "1 hour"})

    assert (queue.call("unsilence", number), queue.call("unsilence", number)) == (True, False)
    assert queue.call("silenced_until", "dead_message", "t", None) is None
    assert queue.value("SELECT count(*) FROM messages.audit WHERE action = 'alert.unsilence'") == 1


def test_there_is_none_of_that_number(queue: Queue) -> None:
    assert queue.call("unsilence", 4711) is False
