"""Mutexes: rows of the queue that only the owner can lock; leases of workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.server.postgres import Database
from tests.sql.queue import Background, Queue

# messages.lock_mutex: one transaction at a time holds a row that only the owner may lock.


def test_it_is_held_until_the_transaction_ends(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        assert queue.call("lock_mutex", "tick") is True
        assert other.call("lock_mutex", "tick") is False

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


# messages.lock_wait_limit: every wait that other sessions can prolong is bounded.


def test_lock_timeout_of_the_session_applies_and_otherwise_ten_seconds(queue: Queue) -> None:
    for own, waits in (("0", "10s"), ("1ms", "1ms"), ("10min", "10min")):
        queue.value("SELECT set_config('lock_timeout', %s, false)", [own])

        assert queue.call("lock_wait_limit") == waits


# messages.wait_mutex: waits for a mutex for a bounded time.


def test_after_the_timeout_it_fails_with_a_hint(queue: Queue, other: Queue) -> None:
    other.conn.execute("SET lock_timeout = '10ms'")
    with queue.conn.transaction():
        queue.call("wait_mutex", "policies")

        with pytest.raises(errors.LockNotAvailable, match="another transaction has changed policies") as refused:
            other.call("wait_mutex", "policies")

    assert "messages.doctor()" in (refused.value.diag.message_hint or "")


# messages.lock_consumer: one session at a time holds the name of a consumer.


def test_one_session_holds_it_with_the_rights_of_its_role(own_queue: Queue, own_database: Database) -> None:
    second = Queue(own_database.connect())
    for queue in (own_queue, second):
        queue.conn.execute("SET ROLE messages_worker")

    assert own_queue.call("lock_consumer", "n") is True
    assert second.call("lock_consumer", "n") is False


# messages.is_lease_alive: whether the session that took a lease still lives.

IS_LEASED = "SELECT messages.is_lease_alive(('export', 'n', %s, %s, now())::messages.lease)"


@pytest.mark.every_server
def test_only_that_process_with_that_key_is_alive(own_queue: Queue) -> None:
    pid = own_queue.conn.info.backend_pid
    for key in (1, 4294967295, 4294967296, 4503599627370496):
        own_queue.value("SELECT pg_advisory_lock(%s)", [key])

        keys = [[key, pid], [key + 1, pid], [key, pid + 1]]
        assert [own_queue.value(IS_LEASED, each) for each in keys] == [True, False, False]
        own_queue.value("SELECT pg_advisory_unlock(%s)", [key])

    # The two halves of a key as separate locks do not count.
    own_queue.value("SELECT pg_advisory_lock(1, 2)")
    assert own_queue.value(IS_LEASED, [(1 << 32) + 2, pid]) is False


# messages.take_lease: one session at a time holds a name, for as long as it lives.


@pytest.fixture
def second(own_database: Database) -> Queue:
    return Queue(own_database.connect())


def take(queue: Queue, name: str = "n") -> bool:
    return bool(queue.call("take_lease", "export", name))


def test_one_session_holds_a_name_of_a_kind_and_may_take_it_again(own_queue: Queue, second: Queue) -> None:
    assert [take(own_queue), take(own_queue), take(second)] == [True, True, False]
    assert (take(second, "other"), second.call("take_lease", "consumer", "n")) == (True, True)
    assert second.call("release_lease", "export", "n") is False
    assert take(second) is False


def test_when_the_session_ends_the_lease_is_free(
    own_queue: Queue, second: Queue, eventually: Callable[..., Any]
) -> None:
    take(own_queue)
    own_queue.conn.close()

    # The server notices it a moment later.
    eventually(lambda: take(second))


def test_holding_the_key_of_a_session_that_is_gone_does_not_hold_the_name(
    own_queue: Queue, own_database: Database, second: Queue, eventually: Callable[..., Any]
) -> None:
    take(own_queue)
    key = second.value("SELECT lock_key FROM messages.lease")
    own_queue.conn.close()
    outsider = Queue(own_database.connect())
    eventually(lambda: outsider.value("SELECT pg_try_advisory_lock(%s)", [key]))

    assert take(second) is True


def test_a_lease_that_is_being_taken_is_waited_for_briefly(own_queue: Queue, second: Queue) -> None:
    with own_queue.conn.transaction():
        take(own_queue)

        assert take(second) is False


def test_a_name_is_required(own_queue: Queue) -> None:
    with pytest.raises(errors.NullValueNotAllowed, match="export"):
        own_queue.call("take_lease", "export", None)


# messages.release_lease: a session releases its own lease, and no other.


def test_a_released_lease_is_free_and_leaves_no_lock(own_queue: Queue, second: Queue) -> None:
    own_queue.call("take_lease", "export", "n")

    assert own_queue.call("release_lease", "export", "n") is True
    assert own_queue.rows("SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()") == []
    assert second.call("take_lease", "export", "n") is True
