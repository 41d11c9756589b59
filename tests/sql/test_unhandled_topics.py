"""messages.unhandled_topics: topics whose messages wait without a worker."""

from __future__ import annotations

from tests.sql.queue import Queue


def unhandled(queue: Queue) -> list[str]:
    return [row.unhandled_topics for row in queue.rows("SELECT * FROM messages.unhandled_topics()")]


def test_a_topic_that_waits_without_a_worker_is_listed_once(queue: Queue) -> None:
    queue.publish_many(3, "b")
    queue.publish("a", channel="c")
    queue.publish("d", wait="1 hour")

    assert unhandled(queue) == ["a", "b", "d"]


def test_a_topic_with_a_live_worker_is_handled(queue: Queue) -> None:
    queue.publish("a")
    queue.publish("b")
    queue.call("register_worker", "w", "host", 42, "1.0", ["a", "x"], 10)

    assert unhandled(queue) == ["b"]


def test_a_worker_that_stops_or_is_silent_handles_nothing(queue: Queue) -> None:
    queue.publish("a")
    queue.call("register_worker", "w", "host", 42, "1.0", ["a"], 10)
    queue.call("touch_worker", "w", {}, True)
    assert unhandled(queue) == ["a"]

    queue.call("touch_worker", "w", {}, False)
    queue.conn.execute("UPDATE messages.worker SET seen_at = clock_timestamp() - interval '31 s'")
    assert unhandled(queue) == ["a"]


def test_a_message_of_an_unhandled_topic_stays_ready(queue: Queue) -> None:
    published = queue.publish("unhandled.topic", wait="-1 day")
    queue.claim("t")
    queue.rows("SELECT * FROM messages.tick()")

    assert [c.id for c in queue.claim("unhandled.topic")] == [published]


def test_a_topic_with_a_mark_but_no_message_does_not_wait(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.low_water VALUES ('empty', 5, now())")

    assert unhandled(queue) == []


def test_the_list_has_a_limit(queue: Queue) -> None:
    for topic in ("a", "b", "c"):
        queue.publish(topic)
    queue.call("register_worker", "w", "host", 42, "1.0", ["a"], 10)

    assert [row.unhandled_topics for row in queue.rows("SELECT * FROM messages.unhandled_topics(1)")] == ["b"]
