"""messages.unsilence: ends a silence before its time."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_it_ends_a_silence_once_and_writes_an_audit_entry(queue: Queue) -> None:
    number = queue.call("silence", topic="t", **{"for": "1 hour"})

    assert (queue.call("unsilence", number), queue.call("unsilence", number)) == (True, False)
    assert queue.call("silenced_until", "dead_message", "t", None) is None
    assert queue.value("SELECT count(*) FROM messages.audit WHERE action = 'alert.unsilence'") == 1


def test_unsilencing_an_unknown_silence_returns_false(queue: Queue) -> None:
    assert queue.call("unsilence", 4711) is False
