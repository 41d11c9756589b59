"""messages.waiting_topics: the topics that may have waiting messages, within bounds."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


def waiting(queue: Queue, after: str = "", limit: int = 100, topics: tuple[str, ...] = ("*",)) -> list[str]:
    found: list[str] = queue.call("waiting_topics", after, limit, list(topics))
    return found


@pytest.fixture(autouse=True)
def topics(queue: Queue) -> None:
    for topic in ("B", "a", "a.b", "ab", "b"):
        queue.publish(topic)
    queue.publish("c", channel="only")


def test_it_lists_all_in_the_order_of_bytes(queue: Queue) -> None:
    assert waiting(queue) == ["B", "a", "a.b", "ab", "b", "c"]


def test_it_continues_behind_a_topic_and_ends_at_its_limit(queue: Queue) -> None:
    assert waiting(queue, after="a", limit=2) == ["a.b", "ab"]
    assert waiting(queue, after="c") == []


def test_topics_are_chosen_by_names_and_beginnings_and_listed_once(queue: Queue) -> None:
    assert waiting(queue, topics=("a*", "ab", "c", "unknown")) == ["a", "a.b", "ab", "c"]
    assert waiting(queue, topics=("ab", "b"), limit=1) == ["ab"]
