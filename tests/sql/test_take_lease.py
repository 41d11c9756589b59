"""messages.take_lease: one session at a time holds a name, for as long as it lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import errors

from tests.server.postgres import Database
from tests.sql.queue import Queue


@pytest.fixture
def second(own_database: Database) -> Queue:
    return Queue(own_database.connect())


def take(queue: Queue, name: str = "n") -> bool:
    return bool(queue.call("take_lease", "export", name))


def test_one_session_holds_it_and_may_take_it_again(own_queue: Queue, second: Queue) -> None:
    assert [take(own_queue), take(own_queue), take(second)] == [True, True, False]


def test_each_name_and_each_kind_is_separate(own_queue: Queue, second: Queue) -> None:
    assert take(own_queue) is True

    assert take(second, "other") is True
    assert second.call("take_lease", "consumer", "n") is True


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
