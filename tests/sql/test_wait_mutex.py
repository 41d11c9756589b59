"""messages.wait_mutex: what cannot be left to a later call waits for its turn, and not for ever."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.sql.queue import Background, Queue


def test_it_has_the_row_when_it_returns(queue: Queue, other: Queue) -> None:
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


def test_when_the_time_is_over_it_fails_and_says_who_knows_more(queue: Queue, other: Queue) -> None:
    other.conn.execute("SET lock_timeout = '10ms'")
    with queue.conn.transaction():
        queue.call("wait_mutex", "policies")

        with pytest.raises(errors.LockNotAvailable, match="another transaction has changed policies") as refused:
            other.call("wait_mutex", "policies")

    assert "messages.doctor()" in (refused.value.diag.message_hint or "")
