"""messages.policy_topic_bits: which topics use a policy that publishing has to look at, as bits of a sequence."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue

ALL = 2**63 - 1
MARKED = "SELECT pg_sequence_last_value('messages.policy_topic_bits')"


@pytest.fixture(autouse=True)
def unmarked(queue: Queue) -> None:
    queue.value("SELECT setval('messages.policy_topic_bits', 1)")


def test_without_such_a_policy_only_the_lowest_bit_is_set(queue: Queue) -> None:
    queue.policy(max_concurrency=1)

    assert queue.call("policy_topic_bits") == queue.value(MARKED) == 1


def test_each_topic_with_one_adds_its_bit_at_once(queue: Queue) -> None:
    one = {}
    for topic in ("a", "b"):
        with queue.conn.transaction(force_rollback=True):
            queue.policy(topic, ttl="1 hour")
            one[topic] = queue.call("policy_topic_bits")
            assert queue.value(MARKED) & one[topic] == one[topic]
    queue.policy("a", ttl="1 hour")
    queue.policy("b", max_depth=5)

    assert one["a"] != one["b"]
    assert queue.call("policy_topic_bits") == queue.value(MARKED) == one["a"] | one["b"]


def test_a_policy_of_all_topics_sets_every_bit(queue: Queue) -> None:
    queue.conn.execute("UPDATE messages.topic SET ttl = '1 hour' WHERE topic = '*'")

    assert queue.value(MARKED) == ALL


def test_the_bit_is_there_before_the_policy_is_committed_and_stays_when_its_writer_gives_up(
    queue: Queue, other: Queue
) -> None:
    with queue.conn.transaction(force_rollback=True):
        queue.policy("a", ttl="1 hour")
        bits = queue.call("policy_topic_bits")
        assert other.value(MARKED) == bits > 1

    assert queue.value(MARKED) == bits


def test_the_tick_takes_back_what_no_topic_uses_any_more(queue: Queue) -> None:
    queue.policy("a", ttl="1 hour")
    queue.policy("b", ttl="1 hour")
    queue.policy("b", ttl=None)

    queue.call("prune")

    assert queue.value(MARKED) == queue.call("policy_topic_bits") > 1
    queue.policy("a", ttl=None)
    queue.call("prune")
    assert queue.value(MARKED) == 1


def test_the_tick_leaves_the_bits_while_somebody_writes_a_policy(queue: Queue, other: Queue) -> None:
    queue.policy("a", ttl="1 hour")
    with other.conn.transaction():
        other.policy("b", ttl="1 hour")
        bits = other.call("policy_topic_bits")
        queue.call("prune")

    assert queue.value(MARKED) & bits == bits


def test_where_the_sequence_was_left_behind_the_tick_adds_what_is_missing(queue: Queue) -> None:
    queue.policy("a", max_payload_bytes=10)
    queue.value("SELECT setval('messages.policy_topic_bits', 1)")

    queue.call("prune")

    assert queue.value(MARKED) == queue.call("policy_topic_bits") > 1


def test_a_row_is_admitted_by_the_policy_of_its_topic_whatever_its_name(queue: Queue) -> None:
    """The bit that is set and the one that is asked for are the same for any name."""
    names = ["a", "orders.created", "Z9", "x" * 200, "a:b_c-d"]
    for name in names:
        queue.policy(name, ttl="1 hour")
        published = queue.publish(name)

        assert queue.message(published).expires_at is not None
