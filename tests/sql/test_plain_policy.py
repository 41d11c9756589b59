"""messages.plain_policy: what a claim of a topic without limits needs to know, and whether the topic has none."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.queue import Queue

SAME = """
    SELECT (q.policy).max_attempts IS NOT DISTINCT FROM p.max_attempts
       AND (q.policy).lock_duration = p.lock_duration AND (q.policy).timeout IS NOT DISTINCT FROM p.timeout
    FROM messages.plain_policy('t') AS q, messages.claim_policy('t', messages.now()) AS p
"""


def is_plain(queue: Queue) -> bool:
    answer: bool = queue.value("SELECT is_plain FROM messages.plain_policy('t')")
    return answer


@pytest.mark.parametrize(
    "settings",
    [
        {"max_attempts": None},
        {"max_attempts": 0},
        {"max_attempts": 3, "lock_duration": "1 minute", "timeout": "5 s", "backoff": None},
    ],
)
def test_it_has_what_the_whole_policy_has(queue: Queue, settings: dict[str, Any]) -> None:
    queue.policy(**settings)

    assert is_plain(queue)
    assert queue.value(SAME)


@pytest.mark.parametrize("topic", ["t", "*"])
@pytest.mark.parametrize(
    "settings",
    [
        {"max_concurrency": 5},
        {"dequeue_rate": 5},
        {"channel_concurrency": 1},
        {"channel_min_interval": "1 s"},
        {"ordered": True},
        {"paused_at": "2026-01-01"},
    ],
)
def test_a_topic_with_a_limit_is_not_plain(queue: Queue, topic: str, settings: dict[str, Any]) -> None:
    queue.policy(topic, **settings)

    assert not is_plain(queue)


def test_a_topic_with_an_open_breaker_is_not_plain(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.breaker (topic, position, probe_at) VALUES ('t', 'closed', NULL)")
    assert is_plain(queue)

    queue.conn.execute("UPDATE messages.breaker SET position = 'open', probe_at = now()")
    assert not is_plain(queue)
