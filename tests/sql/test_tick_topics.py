"""messages.tick_topics: the topics that a task of the tick visits next."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_each_run_continues_behind_the_one_before_and_then_from_the_beginning(queue: Queue) -> None:
    for topic in "abcde":
        queue.publish(topic)

    runs = [queue.call("tick_topics", "renotify_stale", 2) for _ in range(4)]

    assert runs == [["a", "b"], ["c", "d"], ["e"], ["a", "b"]]


def test_each_task_has_a_walk_of_its_own(queue: Queue) -> None:
    for topic in "abc":
        queue.publish(topic)
    queue.call("tick_topics", "renotify_stale", 2)

    assert queue.call("tick_topics", "update_conditions", 2) == ["a", "b"]
