"""messages.prune_audit: the audit log is kept for a year."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_entries_older_than_a_year_are_deleted(queue: Queue) -> None:
    queue.call("pause", "mail")

    queue.later("364 days")
    assert queue.call("prune_audit") == 0
    queue.later("2 days")
    assert queue.call("prune_audit") == 1


def test_the_tick_calls_it(queue: Queue) -> None:
    queue.call("pause", "mail")
    queue.later("366 days")

    queue.rows("SELECT * FROM messages.tick()")

    assert queue.rows("SELECT * FROM messages.audit WHERE action = 'pause'") == []


def test_a_call_is_bounded(queue: Queue) -> None:
    for topic in "abc":
        queue.call("pause", topic)
    queue.later("366 days")

    assert queue.call("prune_audit", 2) == 2
