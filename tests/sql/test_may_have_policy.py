"""messages.may_have_policy: the policies of one topic cost the publishes and settles of others next to nothing."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue

CALLS = "SELECT array_agg(f.funcname::text) FROM pg_stat_xact_user_functions AS f WHERE f.schemaname = 'messages' AND f.calls > 0"
# What looks at policies when messages are published or end.
CHECKS = {"publish_policy", "admit_message", "apply_end_policies", "count_breaker_attempts", "publish_with_key"}


@pytest.fixture
def policed(own_queue: Queue) -> Queue:
    """Every such policy on the topic `other`, and the topic `t` without a bit in common."""
    own_queue.policy(
        "other", ttl="1 day", key_ttl="1 hour", max_depth=1000, max_payload_bytes=1000, publish_rate=1000, breaker={}
    )
    own_queue.conn.execute("SET track_functions = 'all'")
    assert own_queue.call("may_have_policy", "t") is False
    assert own_queue.call("may_have_policy", "other") is True
    return own_queue


def called(queue: Queue, topic: str, key: str = "k") -> set[str]:
    """Publish a message, fail it once and complete it; return which functions were called."""
    with queue.conn.transaction():
        queue.value("SELECT id FROM messages.publish(%s, '1', p_key => %s)", [topic, key])
        queue.publish(topic)
        queue.settle("retry", queue.claim(topic, limit=1), ["it failed"])
        queue.settle("complete", queue.claim(topic, limit=1))
        return set(queue.value(CALLS))


def test_a_topic_without_policies_is_not_asked_for_its_policies(policed: Queue) -> None:
    assert called(policed, "t") & CHECKS == set()


def test_a_topic_with_policies_is(policed: Queue) -> None:
    assert called(policed, "other") >= CHECKS


def test_in_a_statement_with_both_the_policies_hold(policed: Queue) -> None:
    policed.policy("other", max_depth=1)

    policed.conn.execute("INSERT INTO messages.message (topic, payload) VALUES ('t', '1'), ('other', '1'), ('t', '1')")

    assert policed.depth("other") == 1


def test_in_a_settle_of_both_the_policies_hold(policed: Queue) -> None:
    policed.conn.execute("INSERT INTO messages.message (topic, payload) VALUES ('t', '1'), ('other', '1'), ('t', '1')")
    claimed = policed.claim("t", "other")

    policed.settle("complete", claimed)

    assert len(claimed) == 3
    assert policed.depth("other") == 0


def test_the_policies_hold_while_the_sequence_says_nothing(policed: Queue) -> None:
    policed.conn.execute("ALTER SEQUENCE messages.policy_topic_bits RESTART")

    policed.conn.execute("INSERT INTO messages.message (topic, payload) VALUES ('other', '1')")

    assert (policed.depth("other"), policed.call("has_policies")) == (1, True)
    policed.call("prune")
    assert (policed.call("may_have_policy", "other"), policed.call("may_have_policy", "t")) == (True, False)
