"""messages.wait_mutex: waits for a mutex for a bounded time."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.sql.queue import Background, Queue


def test_the_row_is_locked_when_it_returns(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        queue.call("wait_mutex", "policies")

        assert other.call("lock_mutex", "policies") is False


def test_its_holder_is_waited_for(queue: Queue, other: Queue, background: Background) -> None:
    other.conn.execute("SET lock_timeout = '60s'")
    with queue.conn.transaction():
        queue.call("wait_mutex", "policies")
        second = background.start(other.call, "wait_mutex", "policies")
        while not background.is_blocked(other):
            assert not second.done()

    second.result(timeout=60)


def test_after_the_timeout_it_fails_with_a_hint(queue: Queue, other: Queue) -> None:
    other.conn.execute("SET lock_timeout = '10ms'")
    with queue.conn.transaction():
        queue.call("wait_mutex", "policies")

        with pytest.raises(errors.LockNotAvailable, match="another transaction has changed policies") as refused:
            other.call("wait_mutex", "policies")

    assert "messages.doctor()" in (refused.value.diag.message_hint or "")
