"""messages.tick_cursor: where the last run of a task that visits topics ended."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_it_is_the_last_topic_of_the_run_before_or_empty_at_the_end(queue: Queue) -> None:
    for topic in "abc":
        queue.publish(topic)

    seen = [queue.call("tick_cursor", "renotify_stale")]
    for _ in range(2):
        queue.call("tick_topics", "renotify_stale", 2)
        seen.append(queue.call("tick_cursor", "renotify_stale"))

    assert seen == ["", "b", ""]
