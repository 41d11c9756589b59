"""messages.lower_low_water, through release and retry: a mark is lowered without waiting for long. (That it is: test_return_attempts.py.)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.server.postgres import Database
from tests.sql.lock_timeouts import extend_timeout
from tests.sql.queue import Background, Queue


@pytest.fixture
def database(own_database: Database) -> Database:
    """One of these tests changes a function."""
    return own_database


@pytest.fixture
def held(queue: Queue) -> dict[str, list[Any]]:
    """Return two claimed messages of each of two topics, all of them below the mark of their topic."""
    for topic in "ab":
        queue.publish_many(2, topic, wait="-1 hour")
    claimed = queue.claim("a", "b")
    queue.conn.execute("UPDATE messages.low_water SET at = now()")
    return {topic: [row for row in claimed if row.topic == topic] for topic in "ab"}


def test_two_sessions_that_return_messages_in_opposite_order_never_deadlock(
    queue: Queue,
    other: Queue,
    third: Queue,
    background: Background,
    eventually: Callable[..., Any],
    held: dict[str, list[Any]],
) -> None:
    extend_timeout(queue, "lower_low_water", "200ms")

    with third.conn.transaction():
        third.conn.execute("SELECT FROM messages.low_water FOR UPDATE")
        one = background.start(queue.settle, "release", [held["a"][0], held["b"][0]])
        two = background.start(other.settle, "release", [held["b"][1], held["a"][1]])
        eventually(lambda: background.is_blocked(queue) and background.is_blocked(other))

    assert (one.result(timeout=60), two.result(timeout=60)) == ([], [])


def test_two_transactions_that_return_messages_in_opposite_order_never_deadlock(
    queue: Queue, other: Queue, background: Background, held: dict[str, list[Any]]
) -> None:
    with queue.conn.transaction(), other.conn.transaction():
        queue.settle("release", held["a"][:1])
        other.settle("release", held["b"][:1])
        one = background.start(queue.settle, "release", held["b"][1:])
        two = background.start(other.settle, "release", held["a"][1:])

        assert (one.result(timeout=60), two.result(timeout=60)) == ([], [])


def test_what_stays_below_a_mark_that_another_session_holds_is_found_after_the_next_run(
    queue: Queue, other: Queue, held: dict[str, list[Any]]
) -> None:
    with other.conn.transaction():
        other.conn.execute("SELECT FROM messages.low_water FOR UPDATE")
        queue.settle("release", held["a"])
    queue.conn.execute("UPDATE messages.low_water_mark SET next_run_at = 'epoch', left_edge_at = 'epoch'")
    queue.call("raise_low_water")

    assert [row.id for row in queue.claim("a")] == [row.id for row in held["a"]]
