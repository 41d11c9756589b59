"""The wake-up trigger of messages.message: whom an INSERT rings for, with what, and when it stays silent."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.sql.queue import Background, Listener, Queue

pytestmark = pytest.mark.every_server


@pytest.fixture
def listener(listen: Callable[..., Listener]) -> Listener:
    return listen("new_message")


def test_one_row_rings_with_its_id(queue: Queue, listener: Listener) -> None:
    queue.arm()

    published = queue.publish()

    assert listener.received() == [str(published)]


def test_many_rows_of_one_statement_ring_each_topic_once(queue: Queue, listener: Listener) -> None:
    queue.arm()

    queue.conn.execute(
        "INSERT INTO messages.message (topic, payload) SELECT 't' || n % 3, '1' FROM generate_series(1, 300) AS n"
    )

    assert sorted(listener.received()) == ["t0", "t1", "t2"]


def test_two_statements_of_one_transaction_ring_for_each(queue: Queue, listener: Listener) -> None:
    queue.arm()

    with queue.conn.transaction():
        first = queue.publish()
        second = queue.publish()

    assert listener.received() == [str(first), str(second)]


def test_a_copy_rings(queue: Queue, listener: Listener) -> None:
    queue.arm()

    with queue.conn.cursor().copy("COPY messages.message (topic, payload) FROM STDIN") as copy:
        copy.write_row(["t", "1"])
        copy.write_row(["t", "2"])

    assert listener.received() == ["t"]


def test_nothing_rings_when_nobody_was_ever_armed(queue: Queue, listener: Listener) -> None:
    queue.publish()

    assert listener.received() == []


def test_nothing_rings_once_the_sleeper_is_disarmed(queue: Queue, listener: Listener) -> None:
    queue.arm()
    queue.call("disarm", "sleeper")

    queue.publish()

    assert listener.received() == []


def test_disarming_one_sleeper_silences_no_other(queue: Queue, listener: Listener) -> None:
    queue.arm("awake")
    queue.arm("asleep")
    queue.call("disarm", "awake")

    published = queue.publish()

    assert listener.received() == [str(published)]


def test_a_flag_that_ran_out_rings_no_more(queue: Queue, listener: Listener) -> None:
    queue.arm(look_in="0 s")

    queue.publish()

    assert listener.received() == []


def test_an_armed_flag_that_is_not_committed_rings_for_nobody(queue: Queue, other: Queue, listener: Listener) -> None:
    with other.conn.transaction():
        other.arm()
        queue.publish()

    assert listener.received() == []


def test_a_statement_that_publishes_nothing_rings_nothing(queue: Queue, listener: Listener) -> None:
    queue.arm()

    queue.conn.execute("INSERT INTO messages.message (topic, payload) SELECT 't', '1' WHERE false")

    assert listener.received() == []


def test_a_publish_that_is_rolled_back_rings_nothing(queue: Queue, listener: Listener) -> None:
    queue.arm()

    with queue.conn.transaction(force_rollback=True):
        queue.publish()

    assert listener.received() == []


def test_a_message_due_after_the_sleepers_next_look_rings_nothing(queue: Queue, listener: Listener) -> None:
    queue.arm(look_in="5 s")

    queue.publish(wait="1 minute")

    assert listener.received() == []


def test_a_delayed_message_due_before_the_sleepers_next_look_rings(queue: Queue, listener: Listener) -> None:
    queue.arm(look_in="10 minutes")

    published = queue.publish(wait="1 minute")

    assert listener.received() == [str(published)]


def test_among_delayed_rows_the_one_that_is_due_rings(queue: Queue, listener: Listener) -> None:
    queue.arm(look_in="5 s")

    queue.conn.execute(
        """
        INSERT INTO messages.message (topic, payload, available_at)
        VALUES ('t', '1', now()), ('t', '2', now() + interval '1 hour'), ('later', '3', now() + interval '1 hour')
        """
    )

    assert listener.received() == ["t"]


def test_a_sleeper_is_rung_only_for_its_topics(queue: Queue, listener: Listener) -> None:
    queue.arm(topics=["mail", "sms"])

    queue.publish("fax")
    mail = queue.publish("mail")

    assert listener.received() == [str(mail)]


def test_of_a_statement_over_many_topics_only_the_awaited_ring(queue: Queue, listener: Listener) -> None:
    queue.arm("a", topics=["t1"])
    queue.arm("b", topics=["t2", "t9"])

    queue.conn.execute(
        "INSERT INTO messages.message (topic, payload) SELECT 't' || n % 4, '1' FROM generate_series(1, 40) AS n"
    )

    assert sorted(listener.received()) == ["t1", "t2"]


@pytest.mark.parametrize("isolation", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
def test_above_read_committed_it_rings_while_somebody_may_be_armed_since_the_snapshot_may_be_older_than_a_flag(
    queue: Queue, listener: Listener, isolation: psycopg.IsolationLevel
) -> None:
    queue.arm()
    queue.call("disarm", "sleeper")
    queue.conn.isolation_level = isolation

    with queue.conn.transaction():
        published = queue.publish()

    assert listener.received() == [str(published)]


@pytest.mark.parametrize("isolation", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
def test_above_read_committed_it_is_as_silent_as_below_while_nobody_can_be_armed(
    queue: Queue, listener: Listener, isolation: psycopg.IsolationLevel
) -> None:
    queue.conn.execute("SELECT setval('messages.armed_until', 1)")
    queue.conn.isolation_level = isolation

    with queue.conn.transaction():
        queue.publish()

    assert listener.received() == []


def test_a_sleeper_that_arms_after_an_old_snapshot_was_taken_is_rung_all_the_same(
    queue: Queue, other: Queue, listener: Listener
) -> None:
    other.conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with other.conn.transaction():
        other.ids()  # takes the snapshot
        queue.arm()
        published = other.publish()

    assert listener.received() == [str(published)]


def test_policy_always_rings_though_nobody_is_armed(queue: Queue, listener: Listener) -> None:
    queue.policy("loud", notify="always")

    published = queue.publish("loud")
    queue.publish("other")

    assert listener.received() == [str(published)]


def test_policy_always_as_the_default_rings_for_every_topic_but_those_that_say_otherwise(
    queue: Queue, listener: Listener
) -> None:
    queue.policy("*", notify="always")
    queue.policy("silent", notify="off")

    published = queue.publish("any")
    queue.publish("silent")

    assert listener.received() == [str(published)]


def test_policy_always_rings_for_delayed_messages_too_since_listeners_outside_never_look_by_themselves(
    queue: Queue, listener: Listener
) -> None:
    queue.policy("loud", notify="always")

    published = queue.publish("loud", wait="1 hour")

    assert listener.received() == [str(published)]


def test_policy_off_never_rings(queue: Queue, listener: Listener) -> None:
    queue.policy("silent", notify="off")
    queue.arm()

    queue.publish("silent")
    queue.conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with queue.conn.transaction():
        queue.publish("silent")

    assert listener.received() == []


def test_the_sleeper_protocol_misses_no_publish_that_was_under_way(
    queue: Queue, other: Queue, listener: Listener
) -> None:
    """The publisher looked at the flag before it was set, and commits after: then the sleeper's claim must see it."""
    with other.conn.transaction():
        published = other.publish()
        queue.arm()
        draw_xid = queue.call("draw_xid")
        assert queue.claim() == []
        assert queue.call("oldest_running_xid") < draw_xid  # hence the sleeper must not sleep yet

    assert queue.call("oldest_running_xid") >= draw_xid
    assert [c.id for c in queue.claim()] == [published]
    assert listener.received() == []


def test_arming_waits_for_no_publisher_and_no_publisher_waits_for_it(
    queue: Queue, other: Queue, background: Background
) -> None:
    with other.conn.transaction():
        other.publish()
        armed = background.start(queue.arm)

        assert armed.result(timeout=60) is None
