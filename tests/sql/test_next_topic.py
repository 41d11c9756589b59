"""messages.next_topic: the walk over the topics that may have ready messages."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


def walk(queue: Queue, wanted: list[str] | None = None, marks: bool = True) -> list[str]:
    topics: list[str] = []
    while (topic := queue.call("next_topic", wanted, topics[-1] if topics else "", marks)) is not None:
        topics.append(topic)
    return topics


@pytest.fixture
def existing_topics(queue: Queue) -> None:
    """Topics of every kind, in the order of their bytes: upper before lower case, a prefix before the longer name."""
    for topic in ("a", "b", "B", "a.b", "a-b", "ab", "9", "z~"[:1], "x" * 200):
        queue.publish_many(3, topic)
    queue.publish("channels.only", channel="c")


ALL = ["9", "B", "a", "a-b", "a.b", "ab", "b", "channels.only", "x" * 200, "z"]


def test_it_visits_every_topic_once_in_the_order_of_bytes(queue: Queue, existing_topics: None) -> None:
    assert walk(queue) == ALL


def test_it_visits_only_the_wanted_topics(queue: Queue, existing_topics: None) -> None:
    assert walk(queue, ["z", "unknown", "a.b", "B", "channels.only"]) == ["B", "a.b", "channels.only", "z"]


@pytest.mark.parametrize("wanted", [[], ["unknown"], ["0", "~"]])
def test_it_ends_at_once_if_no_wanted_topic_exists(queue: Queue, existing_topics: None, wanted: list[str]) -> None:
    assert walk(queue, wanted) == []


def test_an_empty_queue_has_no_topic(queue: Queue) -> None:
    assert walk(queue) == []


def test_topics_whose_messages_are_all_locked_are_skipped(queue: Queue) -> None:
    queue.publish("a")
    queue.publish("b")
    queue.claim("a")

    assert walk(queue) == ["b"]


def test_a_topic_with_a_mark_is_returned_without_a_check_unless_marks_are_off(
    queue: Queue, existing_topics: None
) -> None:
    queue.conn.execute(
        "INSERT INTO messages.low_water VALUES ('marked', 5, now()), ('a', 5, now()), ('unmarked', 5, NULL)"
    )

    assert walk(queue) == sorted([*ALL, "marked"])
    assert walk(queue, marks=False) == ALL


@pytest.mark.newest
def test_its_cost_depends_on_the_topics_and_not_on_the_messages(own_queue: Queue) -> None:
    own_queue.publish_many(5000, "a")
    own_queue.publish_many(5000, "b", channel="c")
    own_queue.publish("c")

    assert own_queue.buffers("SELECT messages.next_topic(NULL, 'a')") < 60
    assert own_queue.buffers("SELECT messages.next_topic(ARRAY['c'], '')") < 60
