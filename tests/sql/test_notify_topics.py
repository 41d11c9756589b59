"""messages.notify_topics: wakes workers that would otherwise look too late. (Retries, releases and deferrals that notify are in their own files.)"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.sql.queue import Listener, Queue

NOTIFY = "SELECT messages.notify_topics(%s, clock_timestamp() + %s::interval)"


@pytest.fixture
def listener(listen: Callable[..., Listener]) -> Listener:
    return listen("new_message")


def test_each_topic_is_notified_once(queue: Queue, listener: Listener) -> None:
    queue.arm()

    queue.row(NOTIFY, [["a", "b"], "0"])

    assert sorted(listener.received()) == ["a", "b"]


def test_nothing_is_sent_if_no_worker_sleeps(queue: Queue, listener: Listener) -> None:
    queue.row(NOTIFY, [["a"], "0"])

    assert listener.received() == []


def test_nothing_is_sent_for_messages_that_are_due_after_the_next_poll(queue: Queue, listener: Listener) -> None:
    queue.arm(look_in="1 minute")

    queue.row(NOTIFY, [["a"], "2 minutes"])
    queue.row(NOTIFY, [["b"], "30 s"])

    assert listener.received() == ["b"]


def test_only_topics_of_the_sleepers_are_notified(queue: Queue, listener: Listener) -> None:
    queue.arm(topics=["a"])

    queue.row(NOTIFY, [["a", "b"], "0"])

    assert listener.received() == ["a"]


def test_a_topic_with_notify_off_is_not_notified(queue: Queue, listener: Listener) -> None:
    queue.policy("a", notify="off")
    queue.arm()

    queue.row(NOTIFY, [["a", "b"], "0"])

    assert listener.received() == ["b"]


def test_a_topic_with_notify_always_is_notified_although_no_worker_sleeps(queue: Queue, listener: Listener) -> None:
    queue.policy("a", notify="always")

    queue.row(NOTIFY, [["a", "b"], "0"])

    assert listener.received() == ["a"]


def test_above_read_committed_it_always_notifies(queue: Queue, listener: Listener) -> None:
    queue.conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

    with queue.conn.transaction():
        queue.row(NOTIFY, [["a"], "0"])

    assert listener.received() == ["a"]
