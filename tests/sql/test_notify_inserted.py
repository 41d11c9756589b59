"""messages.notify_inserted: which sleepers a statement that inserted messages notifies. Its arguments: test_new_message.py."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.sql.queue import Listener, Queue

NOTIFY = """
    SELECT messages.notify_inserted(
      %(topics)s, ARRAY(SELECT clock_timestamp() + w::interval FROM unnest(%(waits)s::text[]) AS w), %(id)s)
"""


@pytest.fixture
def listener(listen: Callable[..., Listener]) -> Listener:
    return listen("new_message")


def notify(queue: Queue, topics: list[str], waits: list[str], message_id: int | None = None) -> None:
    queue.row(NOTIFY, {"topics": topics, "waits": waits, "id": message_id})


def test_many_messages_send_one_notification_per_topic_and_one_message_sends_its_id(
    queue: Queue, listener: Listener
) -> None:
    queue.arm()

    notify(queue, ["a", "b"], ["0", "0"])
    notify(queue, ["a"], ["0"], 17)

    assert sorted(listener.received()) == ["17", "a", "b"]


def test_topics_whose_first_message_is_due_after_the_next_poll_of_all_workers_are_not_notified(
    queue: Queue, listener: Listener
) -> None:
    queue.arm("soon", ["a", "b"], look_in="5 s")
    queue.arm("late", ["c"], look_in="1 hour")

    notify(queue, ["a", "b", "c"], ["0", "1 minute", "1 minute"])

    assert sorted(listener.received()) == ["a", "c"]


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

    notify(queue, ["t"], ["0"], 1)
    queue.arm()
    notify(queue, ["t"], ["0"], 2)

    assert listener.received() == ["1"] * awake + ["2"] * asleep


def test_nothing_is_sent_if_no_worker_sleeps(queue: Queue, listener: Listener) -> None:
    notify(queue, ["a"], ["0"], 17)

    assert listener.received() == []


def test_above_read_committed_all_topics_are_notified_except_those_with_notify_off(
    queue: Queue, listener: Listener
) -> None:
    queue.policy("silent", notify="off")
    queue.conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

    with queue.conn.transaction():
        notify(queue, ["a", "silent"], ["1 hour", "0"])

    assert listener.received() == ["a"]


def test_a_flag_that_was_set_during_the_transaction_is_seen(queue: Queue, other: Queue, listener: Listener) -> None:
    with queue.conn.transaction():
        queue.ids()
        other.arm()
        notify(queue, ["a"], ["0"])

    assert listener.received() == ["a"]
