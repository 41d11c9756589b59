"""messages.lock_depth: the counter of a topic, created by counting at its first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import errors

from tests.sql.queue import Background, Queue


def test_the_first_call_counts_and_later_ones_read(queue: Queue) -> None:
    queue.publish_many(5)

    counted = queue.call("lock_depth", "t")
    queue.conn.execute("UPDATE messages.depth SET rows = 77")

    assert (counted, queue.call("lock_depth", "t")) == (5, 77)


def test_messages_that_the_caller_will_add_itself_are_left_out(queue: Queue) -> None:
    queue.publish_many(5)

    assert queue.call("lock_depth", "t", 2) == 3


def test_messages_that_have_ended_since_are_subtracted(queue: Queue) -> None:
    queue.policy(max_depth=10)
    queue.publish_many(5)
    queue.settle("complete", queue.claim(limit=2))

    assert queue.call("lock_depth", "t") == 3
    assert queue.rows("SELECT FROM messages.depth_change") == []


def test_a_session_that_waited_sees_messages_that_ended_in_the_meantime(
    queue: Queue, other: Queue, third: Queue, background: Background, eventually: Callable[..., Any]
) -> None:
    queue.policy(max_depth=10)
    queue.publish_many(5)
    claimed = third.claim(limit=2)
    with other.conn.transaction():
        other.publish()
        waiting = background.start(queue.call, "lock_depth", "t")
        eventually(lambda: background.is_blocked(queue))
        third.settle("complete", claimed)

    assert waiting.result(timeout=60) == 4


def test_counted_messages_are_not_added_again(queue: Queue) -> None:
    queue.publish_many(5)
    queue.conn.execute("INSERT INTO messages.depth_change VALUES ('t', 1), ('t', -3)")

    assert queue.call("lock_depth", "t") == queue.depth() == 5


def test_the_transaction_has_its_id_before_it_waits(
    queue: Queue, other: Queue, background: Background, eventually: Callable[..., Any]
) -> None:
    queue.call("lock_depth", "t")
    with other.conn.transaction():
        other.call("lock_depth", "t")
        waiting = background.start(queue.call, "lock_depth", "t")
        eventually(lambda: background.is_blocked(queue))
        xid = other.value("SELECT backend_xid FROM pg_stat_activity WHERE pid = %s", [queue.conn.info.backend_pid])

    assert waiting.result(timeout=60) == 0
    assert xid is not None


def test_two_concurrent_first_calls_create_one_counter(queue: Queue, other: Queue, background: Background) -> None:
    queue.publish_many(3)
    with other.conn.transaction():
        other.call("lock_depth", "t")
        waiting = background.start(queue.call, "lock_depth", "t")

    assert waiting.result(timeout=60) == 3
    assert queue.value("SELECT count(*) FROM messages.depth") == 1


@pytest.mark.parametrize("is_new", [True, False])
def test_an_open_publisher_is_waited_for_for_a_bounded_time(queue: Queue, other: Queue, is_new: bool) -> None:
    if not is_new:
        queue.call("lock_depth", "t")
    other.conn.execute("SET lock_timeout = '10ms'")
    with queue.conn.transaction():
        queue.call("lock_depth", "t")

        with pytest.raises(errors.LockNotAvailable):
            other.call("lock_depth", "t")
    with other.conn.transaction():
        other.call("lock_depth", "t")
        assert other.value("SHOW lock_timeout") == "10ms"
