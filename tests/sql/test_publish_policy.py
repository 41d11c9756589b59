"""messages.publish_policy: the policy for publishing to a topic: its own row, else the defaults; 0 lifts a limit."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.sql.queue import Queue, Row


def admission(queue: Queue, topic: str = "t") -> Row:
    return queue.row("SELECT * FROM messages.publish_policy(%s)", [topic])


def test_without_a_policy_there_is_no_limit(queue: Queue) -> None:
    found = admission(queue)

    assert (found.ttl, found.key_ttl, found.max_depth, found.max_payload_bytes, found.publish_rate) == (None,) * 5
    assert (found.on_full, found.accept_publishes) == ("error", True)


def test_the_topics_own_row_wins_over_the_defaults(queue: Queue) -> None:
    queue.policy("*", ttl="1 hour", key_ttl="1 hour", max_depth=1, on_full="drop", max_payload_bytes=1, publish_rate=1)
    queue.policy("t", ttl="2 hours", max_depth=2, max_payload_bytes=2, publish_rate=2)

    found = admission(queue)

    assert (found.ttl, found.key_ttl) == (timedelta(hours=2), timedelta(hours=1))
    assert (found.max_depth, found.on_full, found.max_payload_bytes, found.publish_rate) == (2, "drop", 2, 2)


def test_0_lifts_the_limits_of_the_defaults(queue: Queue) -> None:
    queue.policy("*", ttl="1 hour", key_ttl="1 hour", max_depth=1, publish_rate=1)
    queue.policy("t", ttl="0", key_ttl="0", max_depth=0, publish_rate=0)

    found = admission(queue)

    assert (found.ttl, found.key_ttl, found.max_depth, found.publish_rate) == (None,) * 4


def test_the_default_burst_is_the_rate_of_one_second(queue: Queue) -> None:
    queue.policy("a", publish_rate=2.5)
    queue.policy("b", publish_rate=0.1)
    queue.policy("c", publish_rate=2.5, burst=100)

    assert [admission(queue, topic).burst for topic in "abc"] == [3, 1, 100]


@pytest.mark.parametrize("default", [True, False])
def test_a_topic_without_its_own_accept_publishes_has_the_default(queue: Queue, default: bool) -> None:
    queue.policy("*", accept_publishes=default)
    queue.policy("yes", accept_publishes=True)
    queue.policy("no", accept_publishes=False)
    queue.policy("silent", max_depth=1)

    accepts = {topic: admission(queue, topic).accept_publishes for topic in ("yes", "no", "silent", "unknown")}

    assert accepts == {"yes": True, "no": False, "silent": default, "unknown": default}
