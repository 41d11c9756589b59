"""messages.lock_mutex: one transaction at a time has a row that only the owner may lock."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.queue import Background, Queue


def test_it_is_held_until_the_transaction_ends(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        assert queue.call("lock_mutex", "tick") is True
        assert other.call("lock_mutex", "tick") is False

    assert other.call("lock_mutex", "tick") is True


def test_undoing_the_savepoint_gives_it_back(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        with queue.conn.transaction(force_rollback=True):
            queue.call("lock_mutex", "tick")

        assert other.call("lock_mutex", "tick") is True


def test_each_name_is_one_of_its_own_and_is_made_when_it_is_asked_for(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        assert queue.call("lock_mutex", "topic", "t") is True
        assert other.call("lock_mutex", "topic", "u") is True
        assert other.call("lock_mutex", "topic", "t") is False, "it is being made"

    with queue.conn.transaction():
        assert queue.call("lock_mutex", "topic", "t") is True
        assert other.call("lock_mutex", "topic", "t") is False, "it was there"


def test_with_a_time_its_holder_is_waited_for(queue: Queue, other: Queue, background: Background) -> None:
    with queue.conn.transaction():
        queue.call("lock_mutex", "tick")
        second = background.start(other.call, "lock_mutex", "tick", "", "60s")
        while not background.is_blocked(other):
            assert not second.done()

    assert second.result(timeout=60) is True


@pytest.mark.parametrize("name", ["", "new"])
def test_when_the_time_is_over_it_was_not_got_and_nothing_else_happened(queue: Queue, other: Queue, name: str) -> None:
    other.conn.execute("SET lock_timeout = '7s'")
    with queue.conn.transaction(), other.conn.transaction():
        queue.call("lock_mutex", "tick", name)

        assert other.call("lock_mutex", "tick", name, "10ms") is False
        assert other.value("SHOW lock_timeout") == "7s"


def test_it_can_be_had_with_an_old_snapshot_whoever_had_it_since(queue: Queue, other: Queue) -> None:
    queue.conn.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    with queue.conn.transaction():
        queue.ids()  # takes the snapshot
        other.call("lock_mutex", "tick")

        assert queue.call("lock_mutex", "tick") is True
