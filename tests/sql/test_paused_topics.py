"""messages.paused_topics: what a claim leaves out together once it has met several topics that are paused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.sql.queue import Queue, Row

LATER = "2099-01-02 03:04:05.678901+00"


def paused(queue: Queue, *topics: str) -> Row:
    return queue.row("SELECT held_back, others FROM messages.paused_topics(%s, messages.now())", [list(topics)])


def publish_to(queue: Queue, count: int) -> list[str]:
    topics = [f"t{nth:02}" for nth in range(count)]
    for topic in topics:
        queue.publish(topic)
    return topics


def look(queue: Queue, topics: list[str]) -> tuple[list[str], dict[str, Any], Any]:
    claimed, left = queue.claim_with_next_due(*topics)
    return [message.topic for message in claimed], left.held_back, left.next_due_s


def test_paused_topics_with_messages_are_held_back_and_the_others_keep_their_order(queue: Queue) -> None:
    queue.policy("for_good", paused_at="2026-01-01")
    queue.policy("for_now", paused_at="2026-01-01", resume_at=LATER)
    queue.policy("resumed", paused_at="2026-01-01", resume_at="2026-01-02")
    queue.policy("empty", paused_at="2026-01-01")
    for topic in ("for_good", "for_now", "resumed", "plain"):
        queue.publish(topic)

    held_back, others = paused(queue, "resumed", "for_good", "plain", "for_now", "empty", "idle")

    assert others == ["resumed", "plain"]
    assert held_back.keys() == {"topic for_good", "topic for_now"}
    assert held_back["topic for_good"] is None
    assert queue.value("SELECT %s::timestamptz = %s::timestamptz", [held_back["topic for_now"], LATER])


def test_a_pause_of_all_topics_holds_each_back(queue: Queue) -> None:
    topics = publish_to(queue, 3)
    queue.policy("*", paused_at="2026-01-01")

    assert paused(queue, *topics) == ({f"topic {topic}": None for topic in topics}, [])


def test_a_claim_finds_the_topic_behind_many_that_are_paused(queue: Queue) -> None:
    topics = publish_to(queue, 30)
    for topic in topics[:-2]:
        queue.policy(topic, paused_at="2026-01-01")

    found, held_back, _ = look(queue, topics)

    assert found == topics[-2:]
    assert held_back.keys() == {f"topic {topic}" for topic in topics[:-2]}


def test_a_claim_says_when_the_first_of_many_paused_topics_is_resumed(queue: Queue) -> None:
    topics = publish_to(queue, 30)
    queue.policy("*", paused_at="2026-01-01")
    queue.policy(topics[20], paused_at="2026-01-01")
    queue.conn.execute("UPDATE messages.topic SET resume_at = messages.now() + interval '1 hour' WHERE topic = '*'")

    found, held_back, next_due_s = look(queue, topics)

    assert (found, len(held_back), held_back[f"topic {topics[20]}"]) == ([], 30, None)
    assert 3500 < next_due_s <= timedelta(hours=1).total_seconds()
