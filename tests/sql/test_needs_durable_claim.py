"""messages.needs_durable_claim: which claims a crash of the server must not take back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.queue import Queue


def needs_durable_claim(queue: Queue) -> bool:
    """Ask it of all messages of topic t."""
    answer: bool = queue.value(
        "SELECT messages.needs_durable_claim(messages.claim_policy('t', messages.now()), array_agg(ctid)) FROM messages.message"
    )
    return answer


@pytest.mark.parametrize(
    "settings", [{"max_concurrency": 5}, {"dequeue_rate": 5}, {"channel_concurrency": 1}, {"ordered": True}]
)
def test_those_of_a_topic_with_a_limit(queue: Queue, settings: dict[str, Any]) -> None:
    queue.policy(max_attempts=0, **settings)
    queue.publish()

    assert needs_durable_claim(queue)


def test_those_of_a_topic_one_of_whose_channels_has_a_limit(queue: Queue) -> None:
    queue.policy(max_attempts=0)
    queue.conn.execute("INSERT INTO messages.channel (topic, channel, concurrency) VALUES ('t', 'c', 1)")
    queue.publish()

    assert needs_durable_claim(queue)


@pytest.mark.parametrize(
    ("of_topic", "of_message", "expected"),
    [(1, None, True), (2, None, False), (0, None, False), (2, 1, True), (1, 2, False), (1, 0, False)],
)
def test_those_that_are_the_last_attempt_of_a_message(
    queue: Queue, of_topic: int, of_message: int | None, expected: bool
) -> None:
    queue.policy(max_attempts=of_topic)
    queue.publish(max_attempts=of_message)

    assert needs_durable_claim(queue) is expected


def test_those_in_which_one_of_many_has_its_last_attempt(queue: Queue) -> None:
    queue.policy(max_attempts=3)
    queue.publish_many(5)
    assert not needs_durable_claim(queue)

    queue.conn.execute("UPDATE messages.message SET attempts = 2 WHERE id = (SELECT max(id) FROM messages.message)")

    assert needs_durable_claim(queue)
