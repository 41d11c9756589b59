"""messages.prune_waiters: deletes expired waiters, and lowers the flag with the last one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sql.queue import Queue

WAIT = "SELECT FROM messages.wait_for(%s, %s)"


@pytest.fixture(autouse=True)
def _unmarked(queue: Queue) -> Iterator[None]:
    queue.conn.execute("SELECT setval('messages.awaited_flag', 1)")
    yield
    queue.conn.execute("SELECT setval('messages.awaited_flag', 1)")


def waiters(queue: Queue) -> list[int]:
    return [row.message_id for row in queue.rows("SELECT message_id FROM messages.waiter ORDER BY message_id")]


def is_awaited(queue: Queue) -> bool:
    return bool(queue.value("SELECT pg_sequence_last_value('messages.awaited_flag') > 1"))


def test_a_waiter_is_deleted_when_its_time_is_over_and_not_before(queue: Queue) -> None:
    first, second = queue.publish_many(2)
    queue.rows(WAIT, [first, "1 minute"])
    queue.rows(WAIT, [second, "1 hour"])

    too_early = queue.call("prune_waiters")
    queue.later("61 seconds")
    in_time = queue.call("prune_waiters")

    assert (too_early, in_time) == (0, 1)
    assert waiters(queue) == [second]
    assert is_awaited(queue) is True


def test_the_flag_is_lowered_with_the_last_one(queue: Queue) -> None:
    queue.rows(WAIT, [queue.publish(), "1 minute"])

    queue.later("61 seconds")
    queue.call("prune")

    assert waiters(queue) == []
    assert is_awaited(queue) is False


def test_a_waiter_that_is_calling_again_is_skipped(queue: Queue, other: Queue) -> None:
    published = queue.publish()
    queue.rows(WAIT, [published, "1 ms"])

    with other.conn.transaction():
        other.rows(WAIT, [published, "1 hour"])
        queue.later("1 minute")
        forgotten = queue.call("prune_waiters")

    assert forgotten == 0
    assert waiters(queue) == [published]
    assert is_awaited(queue) is True


def test_the_flag_stays_while_a_session_begins_to_wait(queue: Queue, other: Queue) -> None:
    published = queue.publish()
    queue.conn.execute("SELECT setval('messages.awaited_flag', 2)")

    with other.conn.transaction():
        other.rows(WAIT, [published, "1 hour"])
        queue.call("prune_waiters")

    assert is_awaited(queue) is True


def test_a_transaction_with_an_old_snapshot_changes_nothing(queue: Queue) -> None:
    queue.rows(WAIT, [queue.publish(), "1 ms"])
    queue.later("1 minute")

    with queue.conn.transaction():
        queue.conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        forgotten = queue.call("prune_waiters")

    assert forgotten == 0
    assert is_awaited(queue) is True
