"""messages.list_topics: all topics, page by page."""

from __future__ import annotations

from tests.sql.queue import Queue


def listed(queue: Queue, after: str = "", limit: int = 100, topics: tuple[str, ...] = ("*",)) -> list[str]:
    rows = queue.rows("SELECT messages.list_topics(%s, %s, %s) AS topic", [after, limit, list(topics)])
    return [row.topic for row in rows]


def test_it_lists_topics_with_waiting_running_or_dead_messages_or_a_policy(queue: Queue) -> None:
    queue.publish("waiting", channel="c")
    queue.publish("delayed", wait="1 hour")
    queue.publish("running")
    queue.claim("running")
    queue.publish("dead")
    queue.settle("fail", queue.claim("dead"), ["boom"])
    queue.policy("declared", max_attempts=2)

    assert listed(queue) == ["dead", "declared", "delayed", "running", "waiting"]


def test_the_pages_have_each_topic_once(queue: Queue) -> None:
    topics = sorted(f"{letter}{n}" for letter in "aB" for n in range(10))
    for topic in topics:
        queue.publish(topic)
    queue.policy("a55", max_attempts=2)

    pages, after = [], ""
    while page := listed(queue, after, 6):
        pages += page
        after = page[-1]

    assert pages == sorted([*topics, "a55"])


def test_topics_are_chosen_by_names_and_by_their_beginnings(queue: Queue) -> None:
    for topic in ("a", "a.b", "ab", "b", "b_c", "bxc"):
        queue.publish(topic)

    assert listed(queue, topics=("a*", "b")) == ["a", "a.b", "ab", "b"]
    assert listed(queue, "a.b", topics=("a*", "b_c")) == ["ab", "b_c"]
    assert listed(queue, limit=2, topics=("b*",)) == ["b", "b_c"]
    assert listed(queue, topics=()) == []
