"""The bits that say which topics have a policy, so that most publishes look up none."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue

# messages.has_policies: one read of a sequence shows whether publishing or settling must check a policy.


@pytest.fixture(autouse=True)
def bits_cleared(queue: Queue) -> None:
    queue.value("SELECT setval('messages.policy_topic_bits', 1)")


def test_a_session_that_does_not_see_a_policy_yet_is_not_limited_by_it(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        queue.policy(ttl="1 s")

        published = other.publish()

    assert other.message(published).expires_at is None
    assert other.message(other.publish()).expires_at is not None


# messages.policy_topic_bits: which topics have a policy that publishing must check, as bits of a sequence.

ALL = 2**63 - 1
MARKED = "SELECT pg_sequence_last_value('messages.policy_topic_bits')"


def test_without_such_a_policy_only_the_lowest_bit_is_set(queue: Queue) -> None:
    queue.policy(max_concurrency=1)

    assert queue.call("policy_topic_bits") == queue.value(MARKED) == 1


def test_each_topic_with_such_a_policy_sets_its_bit_at_once(queue: Queue) -> None:
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


def test_every_topic_with_held_keys_has_its_bit(queue: Queue) -> None:
    topics = [f"t{n}" for n in range(5)]
    for topic in topics:
        queue.conn.execute(
            "INSERT INTO messages.held_key (topic, key, message_id) SELECT %s, n::text, n "
            "FROM generate_series(1, 20) AS n",
            [topic],
        )

    bits = queue.call("policy_topic_bits")

    assert all(bits & queue.call("policy_topic_bit", topic) for topic in topics)


@pytest.fixture(params=[{"ttl": "1 hour"}, {"notify": "always"}], ids=["a policy of publishing", "notify = 'always'"])
def policy(request: pytest.FixtureRequest) -> dict[str, str]:
    """A policy whose topics are bits of a sequence."""
    return dict(request.param)


@pytest.fixture
def name(queue: Queue, policy: dict[str, str]) -> str:
    """The function that says which bits such topics need, and the sequence that has them: both have this name."""
    found = "always_topic_bits" if "notify" in policy else "policy_topic_bits"
    queue.value(f"SELECT setval('messages.{found}', 1)")
    return found


def marked(queue: Queue, name: str) -> int:
    return int(queue.value(f"SELECT pg_sequence_last_value('messages.{name}')"))


def test_the_bit_is_set_before_the_policy_commits_and_stays_after_a_rollback(
    queue: Queue, other: Queue, policy: dict[str, str], name: str
) -> None:
    with queue.conn.transaction(force_rollback=True):
        queue.policy("a", **policy)
        bits = queue.call(name)
        assert marked(other, name) == bits > 1

    assert marked(queue, name) == bits


def test_the_tick_clears_bits_that_no_topic_needs(queue: Queue, policy: dict[str, str], name: str) -> None:
    without = dict.fromkeys(policy)
    queue.policy("a", **policy)
    queue.policy("b", **policy)
    queue.policy("b", **without)

    queue.call("prune")

    assert marked(queue, name) == queue.call(name) > 1
    queue.policy("a", **without)
    queue.call("prune")
    assert marked(queue, name) == 1


def test_the_tick_leaves_the_bits_while_another_session_writes_a_policy(
    queue: Queue, other: Queue, policy: dict[str, str], name: str
) -> None:
    queue.policy("a", **policy)
    with other.conn.transaction():
        other.policy("b", **policy)
        bits = other.call(name)
        queue.call("prune")

    assert marked(queue, name) & bits == bits


def test_the_tick_sets_bits_that_the_sequence_lacks(queue: Queue, policy: dict[str, str], name: str) -> None:
    queue.policy("a", **policy)
    queue.value(f"SELECT setval('messages.{name}', 1)")

    queue.call("prune")

    assert marked(queue, name) == queue.call(name) > 1


def test_the_policy_of_a_topic_applies_whatever_its_name(queue: Queue) -> None:
    """Setting and reading a bit agree for any name."""
    names = ["a", "orders.created", "Z9", "x" * 200, "a:b_c-d"]
    for name in names:
        queue.policy(name, ttl="1 hour")
        published = queue.publish(name)

        assert queue.message(published).expires_at is not None
