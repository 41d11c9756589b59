"""messages.lower_armed_until: lowers the time until which publishes read the flags, once the last flag ends earlier."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.sql.queue import Background, Listener, Queue

ARMED = "SELECT pg_sequence_last_value('messages.armed_until')"


@pytest.fixture(autouse=True)
def far_ahead(queue: Queue) -> None:
    """As after a change of the clock of the server."""
    queue.conn.execute("DELETE FROM messages.sleeper")
    queue.value("SELECT setval('messages.armed_until', extract(epoch FROM timestamptz '9000-01-01')::bigint)")


def until(queue: Queue) -> int:
    """Return the first whole second at which the last flag has ended."""
    return int(queue.value("SELECT ceil(extract(epoch FROM max(armed_until)))::bigint FROM messages.sleeper"))


def test_it_is_lowered_to_the_end_of_the_last_flag(queue: Queue) -> None:
    queue.arm("short", look_in="5 s")
    queue.arm("long", look_in="1 hour")

    assert queue.call("lower_armed_until") is True
    assert queue.value(ARMED) == until(queue)
    assert queue.call("lower_armed_until") is False


def test_without_a_flag_it_is_lowered_to_zero(queue: Queue) -> None:
    queue.arm()
    queue.call("disarm", "sleeper")

    assert queue.call("lower_armed_until") is True
    assert queue.value(ARMED) == 1


def test_prune_lowers_it(queue: Queue, listen: Callable[..., Listener]) -> None:
    listener = listen("new_message")

    queue.call("prune")

    assert queue.value(ARMED) == 1
    queue.conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with queue.conn.transaction():
        queue.publish()
    assert listener.received() == []


def test_it_is_not_lowered_while_an_uncommitted_flag_is_not_visible(
    queue: Queue, other: Queue, listen: Callable[..., Listener]
) -> None:
    listener = listen("new_message")
    with other.conn.transaction():
        other.arm()

        assert queue.call("lower_armed_until") is False

    published = queue.publish()
    assert listener.received() == [str(published)]


def test_a_worker_that_arms_before_the_lowering_commits_need_not_wait_and_raises_it_again(
    queue: Queue, other: Queue
) -> None:
    other.conn.execute("SET lock_timeout = '1ms'")
    with queue.conn.transaction(force_rollback=True):
        assert queue.call("lower_armed_until") is True
        other.arm()

    assert queue.value(ARMED) == until(queue)


def test_a_worker_that_arms_during_the_check_waits_for_it_and_raises_it_again(
    queue: Queue, other: Queue, background: Background
) -> None:
    """The check holds this lock until it has ended; here it is held for longer."""
    with queue.conn.transaction():
        queue.conn.execute("LOCK TABLE messages.sleeper IN SHARE MODE")
        armed = background.start(other.arm)
        while not background.is_blocked(other):
            assert not armed.done()
        assert queue.call("lower_armed_until") is True

    armed.result(timeout=60)
    assert queue.value(ARMED) == until(queue)


def test_a_flag_counts_until_its_removal_is_committed(queue: Queue, other: Queue) -> None:
    queue.arm()
    with other.conn.transaction(force_rollback=True):
        other.call("disarm", "sleeper")

        assert queue.call("lower_armed_until") is False

    assert queue.value(ARMED) >= until(queue)
    queue.call("lower_armed_until")
    assert queue.value(ARMED) == until(queue)


def test_it_is_not_lowered_with_a_snapshot_that_may_be_older_than_a_flag(queue: Queue, other: Queue) -> None:
    queue.conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with queue.conn.transaction():
        queue.ids()  # takes the snapshot
        other.arm()

        assert queue.call("lower_armed_until") is False


def test_a_time_that_has_passed_is_left_alone(queue: Queue) -> None:
    queue.value("SELECT setval('messages.armed_until', 1000)")

    assert queue.call("lower_armed_until") is False
    assert queue.value(ARMED) == 1000
