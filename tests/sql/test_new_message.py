"""The wake-up trigger of messages.message: which sleepers an INSERT notifies, with what, and when it sends nothing."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.sql.queue import Background, Listener, Queue


@pytest.fixture
def listener(listen: Callable[..., Listener]) -> Listener:
    return listen("new_message")


@pytest.mark.every_server
def test_one_row_sends_a_notification_with_its_id(queue: Queue, listener: Listener) -> None:
    queue.arm()

    published = queue.publish()

    assert listener.received() == [str(published)]


def test_many_rows_of_one_statement_send_one_notification_per_topic(queue: Queue, listener: Listener) -> None:
    queue.arm()

    queue.conn.execute(
        "INSERT INTO messages.message (topic, payload) SELECT 't' || n % 3, '1' FROM generate_series(1, 300) AS n"
    )

    assert sorted(listener.received()) == ["t0", "t1", "t2"]


def test_two_statements_of_one_transaction_send_one_notification_each(queue: Queue, listener: Listener) -> None:
    queue.arm()

    with queue.conn.transaction():
        first = queue.publish()
        second = queue.publish()

    assert listener.received() == [str(first), str(second)]


def test_a_copy_sends_a_notification(queue: Queue, listener: Listener) -> None:
    queue.arm()

    with queue.conn.cursor().copy("COPY messages.message (topic, payload) FROM STDIN") as copy:
        copy.write_row(["t", "1"])
        copy.write_row(["t", "2"])

    assert listener.received() == ["t"]


def test_nothing_is_sent_if_no_worker_was_ever_armed(queue: Queue, listener: Listener) -> None:
    queue.publish()

    assert listener.received() == []


def test_nothing_is_sent_once_the_sleeper_is_disarmed(queue: Queue, listener: Listener) -> None:
    queue.arm()
    queue.call("disarm", "sleeper")

    queue.publish()

    assert listener.received() == []


def test_disarming_one_sleeper_does_not_silence_another(queue: Queue, listener: Listener) -> None:
    queue.arm("awake")
    queue.arm("asleep")
    queue.call("disarm", "awake")

    published = queue.publish()

    assert listener.received() == [str(published)]


def test_an_expired_flag_sends_nothing(queue: Queue, listener: Listener) -> None:
    queue.arm(look_in="0 s")

    queue.publish()

    assert listener.received() == []


def test_an_uncommitted_flag_sends_nothing(queue: Queue, other: Queue, listener: Listener) -> None:
    with other.conn.transaction():
        other.arm()
        queue.publish()

    assert listener.received() == []


def test_a_statement_that_inserts_no_row_sends_nothing(queue: Queue, listener: Listener) -> None:
    queue.arm()

    queue.conn.execute("INSERT INTO messages.message (topic, payload) SELECT 't', '1' WHERE false")

    assert listener.received() == []


def test_a_publish_that_is_rolled_back_sends_nothing(queue: Queue, listener: Listener) -> None:
    queue.arm()

    with queue.conn.transaction(force_rollback=True):
        queue.publish()

    assert listener.received() == []


def test_a_message_due_after_the_next_poll_of_the_sleeper_sends_nothing(queue: Queue, listener: Listener) -> None:
    queue.arm(look_in="5 s")

    queue.publish(wait="1 minute")

    assert listener.received() == []


def test_a_delayed_message_due_before_the_next_poll_of_the_sleeper_sends_a_notification(
    queue: Queue, listener: Listener
) -> None:
    queue.arm(look_in="10 minutes")

    published = queue.publish(wait="1 minute")

    assert listener.received() == [str(published)]


def test_of_several_delayed_rows_only_the_due_one_is_notified(queue: Queue, listener: Listener) -> None:
    queue.arm(look_in="5 s")

    queue.conn.execute(
        """
        INSERT INTO messages.message (topic, payload, available_at)
        VALUES ('t', '1', now()), ('t', '2', now() + interval '1 hour'), ('later', '3', now() + interval '1 hour')
        """
    )

    assert listener.received() == ["t"]


def test_a_sleeper_is_notified_only_of_its_topics(queue: Queue, listener: Listener) -> None:
    queue.arm(topics=["mail", "sms"])

    queue.publish("fax")
    mail = queue.publish("mail")

    assert listener.received() == [str(mail)]


def test_of_a_statement_with_many_topics_only_awaited_ones_are_notified(queue: Queue, listener: Listener) -> None:
    queue.arm("a", topics=["t1"])
    queue.arm("b", topics=["t2", "t9"])

    queue.conn.execute(
        "INSERT INTO messages.message (topic, payload) SELECT 't' || n % 4, '1' FROM generate_series(1, 40) AS n"
    )

    assert sorted(listener.received()) == ["t1", "t2"]


@pytest.mark.parametrize("isolation", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
def test_above_read_committed_a_notification_is_sent_while_a_worker_may_be_armed_since_the_snapshot_may_be_older_than_a_flag(
    queue: Queue, listener: Listener, isolation: psycopg.IsolationLevel
) -> None:
    queue.arm()
    queue.call("disarm", "sleeper")
    queue.conn.isolation_level = isolation

    with queue.conn.transaction():
        published = queue.publish()

    assert listener.received() == [str(published)]


@pytest.mark.parametrize("isolation", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
def test_above_read_committed_nothing_is_sent_while_no_worker_can_be_armed(
    queue: Queue, listener: Listener, isolation: psycopg.IsolationLevel
) -> None:
    queue.conn.execute("SELECT setval('messages.armed_until', 1)")
    queue.conn.isolation_level = isolation

    with queue.conn.transaction():
        queue.publish()

    assert listener.received() == []


def test_a_sleeper_that_arms_after_an_old_snapshot_was_taken_is_notified_too(
    queue: Queue, other: Queue, listener: Listener
) -> None:
    other.conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with other.conn.transaction():
        other.ids()  # takes the snapshot
        queue.arm()
        published = other.publish()

    assert listener.received() == [str(published)]


def test_notify_always_sends_a_notification_although_no_worker_is_armed(queue: Queue, listener: Listener) -> None:
    queue.policy("loud", notify="always")

    published = queue.publish("loud")
    queue.publish("other")

    assert listener.received() == [str(published)]


def test_notify_always_as_the_default_applies_to_every_topic_without_another_value(
    queue: Queue, listener: Listener
) -> None:
    queue.policy("*", notify="always")
    queue.policy("silent", notify="off")

    published = queue.publish("any")
    queue.publish("silent")

    assert listener.received() == [str(published)]


def test_notify_always_also_applies_to_delayed_messages_since_external_listeners_never_poll(
    queue: Queue, listener: Listener
) -> None:
    queue.policy("loud", notify="always")

    published = queue.publish("loud", wait="1 hour")

    assert listener.received() == [str(published)]


def test_notify_always_sends_one_notification_where_a_worker_sleeps_too(queue: Queue, listener: Listener) -> None:
    queue.policy("loud", notify="always")
    queue.arm()

    published = queue.publish("loud")
    queue.conn.execute("INSERT INTO messages.message (topic, payload) VALUES ('loud', '1'), ('loud', '2'), ('t', '3')")

    assert sorted(listener.received()) == [str(published), "loud", "t"]


def test_notify_off_never_sends_a_notification(queue: Queue, listener: Listener) -> None:
    queue.policy("silent", notify="off")
    queue.arm()

    queue.publish("silent")
    queue.conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with queue.conn.transaction():
        queue.publish("silent")

    assert listener.received() == []


def test_the_sleeper_protocol_misses_no_publish_in_progress(queue: Queue, other: Queue, listener: Listener) -> None:
    """The publisher read the flag before it was set, and commits after: then the sleeper's claim must see its message."""
    with other.conn.transaction():
        published = other.publish()
        queue.arm()
        draw_xid = queue.call("draw_xid")
        assert queue.claim() == []
        assert queue.call("oldest_running_xid") < draw_xid  # so the sleeper must not sleep yet

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
