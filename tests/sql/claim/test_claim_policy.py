"""The policies that a claim reads, and the topics and priorities that it takes first."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.sql.queue import Queue, Row

# messages.claim_policy: the policy of one topic at one moment; its own row wins over the row '*'.


def policy(queue: Queue, topic: str = "t") -> Row:
    return queue.row("SELECT * FROM messages.claim_policy(%s, messages.now())", [topic])


@pytest.mark.parametrize(
    ("setting", "default", "own"),
    [
        ("max_attempts", 3, 7),
        ("max_concurrency", 3, 7),
        ("dequeue_rate", 3.5, 7.0),
        ("burst", 3, 7),
        ("channel_concurrency", 3, 7),
        ("ordered", True, False),
    ],
)
def test_the_topics_own_value_wins_over_the_default(queue: Queue, setting: str, default: Any, own: Any) -> None:
    queue.policy("*", **{setting: default})
    queue.policy("u", **{setting: own})

    assert (getattr(policy(queue, "t"), setting), getattr(policy(queue, "u"), setting)) == (default, own)


@pytest.mark.parametrize(
    ("setting", "none"),
    [
        ("max_attempts", 0),
        ("max_concurrency", 0),
        ("dequeue_rate", 0),
        ("channel_concurrency", 0),
        ("channel_min_interval", "0"),
    ],
)
def test_zero_in_the_row_of_a_topic_lifts_a_default_limit(queue: Queue, setting: str, none: Any) -> None:
    queue.policy("*", **{setting: "1 s" if setting == "channel_min_interval" else 3})
    queue.policy("t", **{setting: none})

    assert getattr(policy(queue), setting) is None
    assert (policy(queue).is_limited, policy(queue).limits_channels) == (False, False)


def test_an_expired_pause_of_a_channel_costs_its_topic_nothing(queue: Queue) -> None:
    queue.call("pause", "t", channel="acme", resume_in="1 minute")
    while_it_holds = policy(queue).limits_channels
    queue.later("2 minutes")

    assert (while_it_holds, policy(queue).limits_channels) == (True, False)


@pytest.mark.parametrize(("rate", "burst"), [(1, 1), (10, 1), (11, 2), (100, 10), (0.5, 1)])
def test_the_default_burst_is_a_tenth_of_a_second_of_the_rate(queue: Queue, rate: float, burst: int) -> None:
    queue.policy(dequeue_rate=rate)

    assert policy(queue).burst == burst


def test_of_two_pauses_the_longer_one_counts(queue: Queue) -> None:
    queue.policy("*", paused_at="2026-01-01", resume_at="2900-01-01 00:00+00")
    queue.policy("t", paused_at="2026-01-01", resume_at="2800-01-01 00:00+00")

    assert policy(queue).stopped_until == datetime.fromisoformat("2900-01-01 00:00+00:00")


def breaker(queue: Queue, position: str, probe_in: str | None = None) -> None:
    queue.policy(breaker={"probes": 2})
    queue.conn.execute(
        "INSERT INTO messages.breaker (topic, position, probe_at) VALUES ('t', %s, messages.now() + %s::interval)",
        [position, probe_in],
    )


def test_an_open_breaker_stops_the_topic_until_its_probe_and_then_allows_a_few(queue: Queue) -> None:
    queue.later("0")
    breaker(queue, "open", "10 s")
    assert policy(queue).stopped_until == queue.value("SELECT messages.now() + interval '10 s'")

    queue.later("10 s")

    assert (policy(queue).stopped_until, policy(queue).probes, policy(queue).is_limited) == (None, 2, True)


def test_a_breaker_that_was_removed_from_the_policy_stops_nothing(queue: Queue) -> None:
    breaker(queue, "open", "1 hour")

    queue.conn.execute("UPDATE messages.topic SET breaker = NULL")

    assert policy(queue).stopped_until is None


# messages.next_topic: the walk over the topics that may have ready messages.


def next_topic_walk(queue: Queue, wanted: list[str] | None = None, marks: bool = True) -> list[str]:
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
    assert next_topic_walk(queue) == ALL


@pytest.mark.newest
def test_its_cost_depends_on_the_topics_and_not_on_the_messages(own_queue: Queue) -> None:
    own_queue.publish_many(5000, "a")
    own_queue.publish_many(5000, "b", channel="c")
    own_queue.publish("c")

    assert own_queue.buffers("SELECT messages.next_topic(NULL, 'a')") < 60
    assert own_queue.buffers("SELECT messages.next_topic(ARRAY['c'], '')") < 60


# messages.paused_topics: what a claim leaves out together once it has met several topics that are paused.


def publish_to(queue: Queue, count: int) -> list[str]:
    topics = [f"t{nth:02}" for nth in range(count)]
    for topic in topics:
        queue.publish(topic)
    return topics


def look(queue: Queue, topics: list[str]) -> tuple[list[str], dict[str, Any], Any]:
    claimed, left = queue.claim_with_next_due(*topics)
    return [message.topic for message in claimed], left.held_back, left.next_due_s


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
