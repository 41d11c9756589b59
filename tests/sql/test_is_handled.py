"""messages.is_handled: the one rule of whether a worker handles a topic."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


def handled(queue: Queue, topic: str = "t") -> bool:
    return bool(queue.call("is_handled", topic))


def register(queue: Queue, name: str = "w") -> None:
    queue.call("register_worker", name, "host", 42, "1.0", ["t"], 10)


def test_a_topic_that_no_worker_names_is_not_handled(queue: Queue) -> None:
    queue.publish()
    register(queue)

    assert (handled(queue, "t"), handled(queue, "other")) == (True, False)


def test_a_worker_that_stops_or_is_silent_handles_nothing(queue: Queue) -> None:
    register(queue)
    queue.call("touch_worker", "w", {}, True)
    assert not handled(queue)

    queue.call("touch_worker", "w", {}, False)
    assert handled(queue)
    queue.conn.execute("UPDATE messages.worker SET seen_at = clock_timestamp() - interval '31 s'")
    assert not handled(queue)


@pytest.mark.parametrize("topics", [["t", "x"], None])
def test_an_armed_worker_outside_the_registry_handles_its_topic(queue: Queue, topics: list[str] | None) -> None:
    queue.call("arm", "shop", topics, "30 s")

    assert handled(queue)
    assert handled(queue, "other") is (topics is None)
    queue.conn.execute("UPDATE messages.sleeper SET armed_until = clock_timestamp() - interval '1 s'")
    assert not handled(queue)


def test_a_topic_with_notify_always_is_not_handled_because_of_that(queue: Queue) -> None:
    queue.policy("t", notify="always")

    assert not handled(queue)


def test_a_worker_outside_the_registry_handles_the_topic_of_its_message_until_the_lock_expires(queue: Queue) -> None:
    queue.publish()
    queue.publish("other")
    (held,) = queue.claim(worker="http:shop", lock_duration="1 minute")

    assert (handled(queue), handled(queue, "other")) == (True, False)
    queue.later("61 s")
    assert not handled(queue)
    queue.later("0 s")
    queue.settle("complete", [held])
    assert not handled(queue)


@pytest.mark.parametrize("holder", ["w", "w/2"])
def test_a_message_that_a_stopping_worker_still_holds_handles_nothing(queue: Queue, holder: str) -> None:
    register(queue)
    queue.publish()
    queue.claim(worker=holder)
    queue.call("arm", "w", ["t"], "30 s")
    queue.call("touch_worker", "w", {}, True)

    assert not handled(queue)


def test_a_worker_over_http_handles_a_topic_as_long_as_it_holds_a_message(queue: Queue) -> None:
    queue.call("touch_http_worker", "http:shop/w", "h", ["t"], 1)
    queue.publish()
    queue.claim(worker="http:shop/w")

    queue.conn.execute("UPDATE messages.worker SET seen_at = clock_timestamp() - interval '31 s'")

    assert handled(queue)


def test_stats_unhandled_topics_and_explain_use_it(queue: Queue) -> None:
    waiting = queue.publish()
    queue.call("arm", "shop", ["t"], "30 s")

    assert [row.handled for row in queue.rows("SELECT * FROM messages.stats()")] == [True]
    assert queue.rows("SELECT * FROM messages.unhandled_topics()") == []
    assert [row.code for row in queue.rows("SELECT * FROM messages.explain(%s)", [waiting])] == ["ready"]


@pytest.mark.newest
def test_it_reads_a_few_pages_however_many_messages_are_locked(own_queue: Queue) -> None:
    own_queue.publish_many(20_000)
    for _ in range(2):
        own_queue.claim(limit=10_000, lock_duration="0 s")

    assert own_queue.buffers("SELECT messages.is_handled('t')") < 250
