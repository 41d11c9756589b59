"""messages.notify_policy: whether publishes of a topic send notifications."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


@pytest.mark.parametrize(
    ("default", "topic", "effective"),
    [("auto", None, "auto"), ("auto", "off", "off"), ("off", "always", "always"), ("always", None, "always")],
)
def test_the_topics_own_value_wins_over_the_default(
    queue: Queue, default: str, topic: str | None, effective: str
) -> None:
    queue.policy("*", notify=default)
    queue.policy("t", notify=topic)

    assert queue.call("notify_policy", "t") == effective


def test_a_topic_without_a_policy_follows_the_default(queue: Queue) -> None:
    queue.policy("*", notify="off")

    assert queue.call("notify_policy", "unheard.of") == "off"
