"""Notifications of new messages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest

from tests.sql.queue import Background, Listener, Queue

# new_message: The wake-up trigger of messages.message: which sleepers an INSERT notifies, with what, and when it sends
# nothing.


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
def test_above_read_committed_a_notification_is_sent_while_a_worker_may_be_armed_in_case_the_snapshot_is_older(
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
    """The publisher read the flag before it was set, and commits after.

    Then the sleeper's claim must see its message.
    """
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


# messages.notify_inserted: which sleepers a statement that inserted messages notifies. Its arguments: test_notify.py.


@pytest.mark.parametrize(
    ("default", "topic", "asleep", "awake"),
    [
        ("auto", None, True, False),
        ("auto", "off", False, False),
        ("off", None, False, False),
        ("off", "auto", True, False),
        ("off", "always", True, True),
        ("always", None, True, True),
        ("always", "auto", True, False),
    ],
)
def test_the_topics_own_value_of_notify_wins_over_the_default(
    queue: Queue, listener: Listener, default: str, topic: str | None, asleep: bool, awake: bool
) -> None:
    queue.policy("*", notify=default)
    queue.policy("t", notify=topic)

    first = queue.publish()
    queue.arm()
    second = queue.publish()

    assert listener.received() == [str(first)] * awake + [str(second)] * asleep


# messages.notify: sends notifications. While the notification queue is full: security/test_notify_queue.py.


@pytest.mark.every_server
def test_each_payload_is_sent_and_the_result_says_so(queue: Queue, listen: Callable[..., Listener]) -> None:
    listener = listen("a")

    assert queue.call("notify", "a", ["x", "y", ""]) is True

    assert sorted(listener.received()) == ["", "x", "y"]


@pytest.mark.every_server
@pytest.mark.parametrize("payloads", [[], None])
def test_without_a_payload_nothing_is_sent(
    queue: Queue, listen: Callable[..., Listener], payloads: list[str] | None
) -> None:
    listener = listen("a")

    assert queue.value("SELECT messages.notify('a', %s::text[])", [payloads]) is True

    assert listener.received() == []


# messages.notify_topics: wakes workers that would otherwise look too late. (Retries, releases and deferrals that notify
# are in their own files.)

NOTIFY_TOPICS_NOTIFY = "SELECT messages.notify_topics(%s, clock_timestamp() + %s::interval)"


def test_a_topic_with_notify_off_is_not_notified(queue: Queue, listener: Listener) -> None:
    queue.policy("a", notify="off")
    queue.arm()

    queue.row(NOTIFY_TOPICS_NOTIFY, [["a", "b"], "0"])

    assert listener.received() == ["b"]


def test_a_topic_with_notify_always_is_notified_although_no_worker_sleeps(queue: Queue, listener: Listener) -> None:
    queue.policy("a", notify="always")

    queue.row(NOTIFY_TOPICS_NOTIFY, [["a", "b"], "0"])

    assert listener.received() == ["a"]


# messages.renotify_stale: notifies again of messages that wait for too long.


@pytest.mark.parametrize("channel", [None, "c"])
def test_a_topic_whose_messages_wait_too_long_is_notified_once(
    queue: Queue, listener: Listener, channel: str | None
) -> None:
    queue.publish_many(100, wait="-11 s", channel=channel)

    assert queue.call("renotify_stale") == 1
    assert listener.received() == ["t"]


def test_every_stale_topic_is_notified(queue: Queue, listener: Listener) -> None:
    for topic in ("a", "b", "c"):
        queue.publish(topic, wait="-1 hour")
    queue.publish("fresh")

    assert queue.call("renotify_stale") == 3
    assert sorted(listener.received()) == ["a", "b", "c"]


def test_a_message_that_is_ready_for_less_than_the_bound_is_not_stale(queue: Queue, listener: Listener) -> None:
    queue.publish(wait="-30 s")

    assert queue.call("renotify_stale", timedelta(minutes=1)) == 0
    assert queue.call("renotify_stale", timedelta(seconds=20)) == 1


@pytest.mark.parametrize("priority", [0, 5, 9])
def test_a_stale_message_of_any_priority_counts(queue: Queue, listener: Listener, priority: int) -> None:
    queue.publish(wait="-1 hour", priority=priority)
    queue.publish(priority=4)

    assert queue.call("renotify_stale") == 1


def test_retries_and_delayed_messages_count_from_when_they_became_ready(queue: Queue, listener: Listener) -> None:
    queue.publish("delayed", wait="1 hour")
    queue.publish("retried", max_attempts=2)
    queue.settle("retry", queue.claim("retried"), ["boom"], [timedelta(hours=1)])
    assert queue.call("renotify_stale") == 0

    queue.later("1 hour 1 minute")

    assert queue.call("renotify_stale") == 2


def test_running_messages_are_not_stale(queue: Queue, listener: Listener) -> None:
    queue.publish(wait="-1 hour")
    queue.claim()

    assert queue.call("renotify_stale") == 0


def test_renotify_stale_a_topic_with_notify_off_is_not_notified(queue: Queue, listener: Listener) -> None:
    queue.policy("t", notify="off")
    queue.publish(wait="-1 hour")

    assert (queue.call("renotify_stale"), listener.received()) == (0, [])


def test_a_paused_topic_is_not_notified_until_its_pause_is_over(queue: Queue, listener: Listener) -> None:
    queue.publish(wait="-1 hour")
    queue.call("pause", "t", resume_in="1 minute")
    assert (queue.call("renotify_stale"), listener.received()) == (0, [])

    queue.later("2 minutes")

    assert (queue.call("renotify_stale"), listener.received()) == (1, ["t"])


def test_runs_are_bounded_and_each_topic_has_its_turn(queue: Queue, listener: Listener) -> None:
    for topic in ("a", "b", "c", "d", "e"):
        queue.publish(topic, wait="-1 hour")

    notified = []
    for _ in range(4):
        queue.rows("SELECT messages.renotify_stale(p_limit => 2)")
        notified.append(listener.received())

    assert notified == [["a", "b"], ["c", "d"], ["e"], ["a", "b"]]


def test_a_run_that_ended_at_a_topic_continues_behind_it_when_it_is_gone(queue: Queue, listener: Listener) -> None:
    for topic in ("a", "b", "c"):
        queue.publish(topic, wait="-1 hour")
    queue.rows("SELECT messages.renotify_stale(p_limit => 2)")
    listener.received()
    queue.call("purge_topic", "b")

    queue.rows("SELECT messages.renotify_stale(p_limit => 2)")

    assert listener.received() == ["c"]
