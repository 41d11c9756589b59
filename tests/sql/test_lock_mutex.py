"""messages.lock_mutex: one transaction at a time holds a row that only the owner may lock."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.queue import Background, Queue


def test_it_is_held_until_the_transaction_ends(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        assert queue.call("lock_mutex", "tick") is True
        assert other.call("lock_mutex", "tick") is False

    assert other.call("lock_mutex", "tick") is True


def test_a_rollback_to_a_savepoint_releases_it(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        with queue.conn.transaction(force_rollback=True):
            queue.call("lock_mutex", "tick")

        assert other.call("lock_mutex", "tick") is True


def test_each_name_is_a_separate_mutex_and_is_created_at_its_first_use(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        assert queue.call("lock_mutex", "topic", "t") is True
        assert other.call("lock_mutex", "topic", "u") is True
        assert other.call("lock_mutex", "topic", "t") is False, "the row is being created"

    with queue.conn.transaction():
        assert queue.call("lock_mutex", "topic", "t") is True
        assert other.call("lock_mutex", "topic", "t") is False, "it was there"


def test_with_a_timeout_its_holder_is_waited_for(queue: Queue, other: Queue, background: Background) -> None:
    with queue.conn.transaction():
        queue.call("lock_mutex", "tick")
        second = background.start(other.call, "lock_mutex", "tick", "", "60s")
        while not background.is_blocked(other):
            assert not second.done()

    assert second.result(timeout=60) is True


def test_who_waited_and_got_it_has_the_lock_timeout_of_before(queue: Queue) -> None:
    queue.conn.execute("SET lock_timeout = '7s'")
    with queue.conn.transaction():
        assert queue.call("lock_mutex", "topic", "new", "10ms") is True

        assert queue.value("SHOW lock_timeout") == "7s"


@pytest.mark.parametrize("name", ["", "new"])
def test_after_the_timeout_it_returns_false_and_nothing_else_happens(queue: Queue, other: Queue, name: str) -> None:
    other.conn.execute("SET lock_timeout = '7s'")
    with queue.conn.transaction(), other.conn.transaction():
        queue.call("lock_mutex", "tick", name)

        assert other.call("lock_mutex", "tick", name, "10ms") is False
        assert other.value("SHOW lock_timeout") == "7s"


def test_it_can_be_locked_with_a_snapshot_older_than_its_last_holder(queue: Queue, other: Queue) -> None:
    queue.conn.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    with queue.conn.transaction():
        queue.ids()  # takes the snapshot
        other.call("lock_mutex", "tick")

        assert queue.call("lock_mutex", "tick") is True
