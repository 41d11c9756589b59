"""messages.renotify_stale: notifies again of messages that wait for too long."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.sql.queue import Listener, Queue


@pytest.fixture
def listener(listen: Callable[..., Listener]) -> Listener:
    return listen("new_message")


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


def test_a_topic_with_notify_off_is_not_notified(queue: Queue, listener: Listener) -> None:
    queue.policy("t", notify="off")
    queue.publish(wait="-1 hour")

    assert (queue.call("renotify_stale"), listener.received()) == (0, [])


def test_a_paused_topic_is_not_notified_until_its_pause_is_over(queue: Queue, listener: Listener) -> None:
    queue.publish(wait="-1 hour")
    queue.call("pause", "t", resume_in="1 minute")
    assert (queue.call("renotify_stale"), listener.received()) == (0, [])

    queue.later("2 minutes")

    assert (queue.call("renotify_stale"), listener.received()) == (1, ["t"])


def test_it_notifies_although_no_worker_is_armed_since_external_listeners_depend_on_it(
    queue: Queue, listener: Listener
) -> None:
    queue.publish(wait="-1 hour")

    queue.call("renotify_stale")

    assert listener.received() == ["t"]


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
