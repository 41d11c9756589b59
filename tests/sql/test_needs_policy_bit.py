"""messages.needs_policy_bit: which policies publishing and settling must check."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.queue import Queue

NEEDS = "SELECT messages.needs_policy_bit(t) FROM messages.topic AS t WHERE topic = 't'"


@pytest.mark.parametrize(
    "settings",
    [
        {"key_ttl": "1 s"},
        {"ttl": "1 s"},
        {"max_depth": 1},
        {"max_payload_bytes": 1},
        {"publish_rate": 1},
        {"breaker": {}},
        {"payload_schema": {}},
        {"accept_publishes": False},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_a_policy_that_publishing_or_settling_checks_needs_it(queue: Queue, settings: dict[str, Any]) -> None:
    queue.policy(**settings)

    assert queue.value(NEEDS) is True
    assert queue.call("has_policies") is True


def test_a_policy_that_only_claims_check_does_not(queue: Queue) -> None:
    queue.policy(max_concurrency=1, dequeue_rate=1, channel_concurrency=1, channel_min_interval="1 s", max_attempts=5)
    queue.policy(archive_success="none", notify="off", accept_publishes=True, lock_duration="5 s")

    assert queue.value(NEEDS) is False
