"""messages.examine_workers: whether every topic that needs a worker has one, whether workers receive notifications, and their versions."""

from __future__ import annotations

import pytest

from tests.sql.examined import examine
from tests.sql.queue import Queue


def start(queue: Queue, name: str = "w", *topics: str, version: str = "1.0", listener: str = "listening") -> None:
    queue.call("register_worker", name, "h1", 42, version, list(topics), 10)
    queue.conn.execute(
        "UPDATE messages.worker SET started_at = started_at - interval '1 minute', status = jsonb_build_object('listener', %s::text) WHERE name = %s",
        [listener, name],
    )


def test_with_a_listening_worker_there_is_no_finding(queue: Queue) -> None:
    start(queue, "w", "t")
    queue.publish("t")

    assert examine(queue, "workers").wrong == {}


def test_a_queue_without_a_worker_is_reported(queue: Queue) -> None:
    found = examine(queue, "workers")

    assert found.wrong == {"workers": "fail"}
    assert "pgrouse run" in found.of("workers").fix


def test_a_worker_that_left_without_unregistering_is_reported_until_its_row_is_deleted(queue: Queue) -> None:
    start(queue, "lives", "t")
    start(queue, "gone", "t")
    queue.conn.execute("UPDATE messages.worker SET seen_at = seen_at - interval '5 minutes' WHERE name = 'gone'")

    found = examine(queue, "workers")
    queue.conn.execute(found.of("workers_gone").fix.split(": ")[1].encode())

    assert found.wrong == {"workers_gone": "warn"}
    assert found.of("workers_gone").what.startswith("gone (process 42 on h1) was last seen 300 s ago")
    assert examine(queue, "workers").wrong == {}


def test_workers_of_several_versions_are_reported(queue: Queue) -> None:
    start(queue, "old", "t", version="0.9")
    start(queue, "new", "t", version="1.0")
    start(queue, "newer", "t", version="1.0")

    found = examine(queue, "workers")

    assert found.wrong == {"worker_versions": "warn"}
    assert "0.9 (1), 1.0 (2)" in found.of("worker_versions").what


@pytest.mark.parametrize("mode", ["degraded", "connecting"])
def test_a_worker_without_notifications_is_reported(queue: Queue, mode: str) -> None:
    start(queue, "polling", "t", listener=mode)

    found = examine(queue, "workers")

    assert found.wrong == {"listeners": "warn"}
    assert f"polling receives no notifications ({mode})" in found.of("listeners").what
    assert "listen_dsn" in found.of("listeners").fix


def test_a_worker_that_has_just_started_may_connect_but_not_be_degraded(queue: Queue) -> None:
    for name, mode in (("new", "connecting"), ("polling", "degraded")):
        queue.call("register_worker", name, "host", 1, "1.0", ["t"], 10)
        queue.call("touch_worker", name, f'{{"listener": "{mode}"}}')

    found = examine(queue, "workers")

    assert found.wrong == {"listeners": "warn"}
    assert found.of("listeners").what.startswith("polling receives")


def test_a_topic_whose_messages_wait_without_a_worker_is_reported(queue: Queue) -> None:
    start(queue, "w", "t")
    queue.publish("orphan")

    found = examine(queue, "workers")

    assert found.wrong == {"unhandled_topics": "warn"}
    assert "messages of orphan wait" in found.of("unhandled_topics").what


def test_a_topic_without_a_worker_is_a_failure_when_it_is_one_for_the_alerts(queue: Queue) -> None:
    start(queue, "w", "t")
    queue.publish("orphan", wait="-10 minutes")

    assert [row.kind for row in queue.rows("SELECT kind FROM messages.conditions()")] == ["no_worker"]
    assert examine(queue, "workers").wrong == {"unhandled_topics": "fail"}

    queue.call("pause", "orphan")

    assert queue.rows("SELECT kind FROM messages.conditions()") == []
    assert examine(queue, "workers").wrong == {}


def test_dead_letters_need_no_worker(queue: Queue) -> None:
    start(queue, "w", "t")
    queue.policy("t", dead_letter=True)
    queue.publish("t")
    queue.settle("fail", queue.claim("t"), ["boom"])

    assert queue.rows("SELECT FROM messages.message WHERE topic = 't.dlq'")
    assert examine(queue, "workers").wrong == {}


def test_a_schedule_and_a_subscription_whose_topic_has_no_worker_are_reported_before_a_message_waits(
    queue: Queue,
) -> None:
    start(queue, "w", "t")
    queue.schedule("nightly", topic="report")
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('t', 'report')")

    found = examine(queue, "workers")

    assert found.wrong == {"idle_topics": "warn"}
    assert found.of("idle_topics").what.startswith("the schedule nightly, the subscription to t publishes to report")
