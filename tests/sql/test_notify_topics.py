"""messages.notify_topics: wakes anyone who sleeps and would look too late. (Retries, releases and deferrals that ring are in their own files.)"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.sql.queue import Listener, Queue

pytestmark = pytest.mark.every_server

RING = "SELECT messages.notify_topics(%s, clock_timestamp() + %s::interval)"


@pytest.fixture
def listener(listen: Callable[..., Listener]) -> Listener:
    return listen("new_message")


def test_each_topic_rings_once(queue: Queue, listener: Listener) -> None:
    queue.arm()

    queue.row(RING, [["a", "b"], "0"])

    assert sorted(listener.received()) == ["a", "b"]


def test_nobody_is_rung_when_nobody_sleeps(queue: Queue, listener: Listener) -> None:
    queue.row(RING, [["a"], "0"])

    assert listener.received() == []


def test_nobody_is_rung_for_what_is_due_after_he_looks_by_himself(queue: Queue, listener: Listener) -> None:
    queue.arm(look_in="1 minute")

    queue.row(RING, [["a"], "2 minutes"])
    queue.row(RING, [["b"], "30 s"])

    assert listener.received() == ["b"]


def test_only_the_sleepers_topics_ring(queue: Queue, listener: Listener) -> None:
    queue.arm(topics=["a"])

    queue.row(RING, [["a", "b"], "0"])

    assert listener.received() == ["a"]


def test_a_topic_with_notify_off_stays_silent(queue: Queue, listener: Listener) -> None:
    queue.policy("a", notify="off")
    queue.arm()

    queue.row(RING, [["a", "b"], "0"])

    assert listener.received() == ["b"]


def test_a_topic_with_notify_always_rings_though_nobody_sleeps(queue: Queue, listener: Listener) -> None:
    queue.policy("a", notify="always")

    queue.row(RING, [["a", "b"], "0"])

    assert listener.received() == ["a"]


def test_above_read_committed_it_always_rings(queue: Queue, listener: Listener) -> None:
    queue.conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

    with queue.conn.transaction():
        queue.row(RING, [["a"], "0"])

    assert listener.received() == ["a"]
