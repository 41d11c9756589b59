"""Which policies need a bit, and who raises and clears it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgrouse.publishing.publish_statement import HAS_NO_POLICY
from tests.sql.queue import Background, Queue

# messages.needs_policy_bit: which policies publishing and settling must check.

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


# messages.may_have_policy: the policies of one topic cost the publishes and settles of others next to nothing.

CALLS = (
    "SELECT array_agg(f.funcname::text) FROM pg_stat_xact_user_functions AS f "
    "WHERE f.schemaname = 'messages' AND f.calls > 0"
)
# The functions that look at policies when messages are published or end.
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


# messages.policy_topic_bit: the function, the trigger's condition and the statement of publish() agree about the bit of
# a topic.

NAMES = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._:-]{0,199}\Z")
TRIGGER = "SELECT pg_get_triggerdef(t.oid) FROM pg_trigger AS t WHERE t.tgname = 'admit_message'"


def test_it_is_one_of_the_62_bits_above_the_lowest(queue: Queue) -> None:
    bits = {queue.call("policy_topic_bit", f"t{n}") for n in range(1000)}

    assert bits == {2**n for n in range(1, 63)}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(topic=NAMES)
def test_all_who_ask_for_it_agree(queue: Queue, topic: str) -> None:
    (condition,) = re.findall(r"WHEN \(\((.* IS DISTINCT FROM 0)", queue.value(TRIGGER))
    asked = {
        "trigger": condition.removeprefix("(").replace("(new.topic)::text", "%(topic)s::text"),
        "publish()": f"({HAS_NO_POLICY.format(topic='%(topic)s::text')}) IS NOT TRUE",
    }
    bit = queue.call("policy_topic_bit", topic)
    for bits, expected in ((bit | 1, True), ((2**63 - 1) & ~bit, False)):
        queue.value("SELECT setval('messages.policy_topic_bits', %s)", [bits])
        answers = {
            name: queue.value(f"SELECT {text}".replace(" % 62", " %% 62"), {"topic": topic})
            for name, text in asked.items()
        }
        assert answers == dict.fromkeys(asked, expected)
        assert queue.call("may_have_policy", topic) is expected


# messages.set_policy_bits: a session that writes a policy for publishing sets the bit of its topic before it commits.


def test_several_sessions_may_set_bits_at_once(queue: Queue, other: Queue) -> None:
    other.conn.execute("SET lock_timeout = '1s'")
    with queue.conn.transaction():
        queue.call("set_policy_bits")

        other.call("set_policy_bits")


def test_a_change_of_subscriptions_waits_for_one_of_policies_and_loses_none_of_its_bits(
    queue: Queue, other: Queue, background: Background
) -> None:
    with queue.conn.transaction():
        queue.policy("t", ttl="1 s")
        subscribed = background.start(
            other.conn.execute, "INSERT INTO messages.subscription (topic, subscriber) VALUES ('u', 'v')"
        )
        while not background.is_blocked(other):
            assert not subscribed.done()

    subscribed.result(timeout=60)
    assert (queue.call("may_have_policy", "t"), queue.call("may_have_policy", "u")) == (True, True)


# messages.clear_policy_bits: clears the bits that no topic needs any more.


@pytest.fixture
def marked(queue: Queue) -> None:
    queue.value("SELECT setval('messages.policy_topic_bits', 9223372036854775807)")


@pytest.mark.usefixtures("marked")
def test_all_are_cleared_when_no_topic_has_such_a_policy(queue: Queue) -> None:
    queue.policy(max_concurrency=1)

    assert queue.call("clear_policy_bits") is True

    assert queue.call("has_policies") is False
    assert queue.call("clear_policy_bits") is False


@pytest.mark.usefixtures("marked")
@pytest.mark.parametrize(
    "use",
    [
        "UPDATE messages.topic SET ttl = '1 s' WHERE topic = '*'",
        "INSERT INTO messages.topic (topic, max_depth) VALUES ('t', 1)",
        "INSERT INTO messages.subscription (topic, subscriber) VALUES ('t', 'u')",
        "INSERT INTO messages.held_key (topic, key, message_id) VALUES ('t', 'k', 1)",
        "INSERT INTO messages.depth (topic, rows) VALUES ('t', 1)",
    ],
)
def test_those_stay_that_any_policy_needs(queue: Queue, use: str) -> None:
    queue.conn.execute(use.encode())

    queue.call("clear_policy_bits")

    assert queue.call("clear_policy_bits") is False
    assert queue.call("may_have_policy", "t") is True


@pytest.mark.usefixtures("marked")
def test_a_transaction_with_an_old_snapshot_leaves_them(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")

        assert queue.call("clear_policy_bits") is False


@pytest.mark.usefixtures("marked")
def test_a_session_that_writes_a_policy_during_the_clearing_need_not_wait_and_sets_its_bit_again(
    queue: Queue, other: Queue
) -> None:
    other.conn.execute("SET lock_timeout = '1ms'")
    with queue.conn.transaction():
        assert queue.call("clear_policy_bits") is True
        other.policy(ttl="1 s")

    assert queue.call("has_policies") is True


@pytest.mark.usefixtures("marked")
def test_a_session_that_writes_a_policy_during_the_check_waits_for_it_and_sets_its_bit_again(
    queue: Queue, other: Queue, background: Background
) -> None:
    """The check holds these locks until it has ended; here they are held for longer."""
    with queue.conn.transaction():
        queue.conn.execute("LOCK TABLE messages.topic, messages.subscription IN SHARE MODE")
        written = background.start(other.policy, ttl="1 s")
        while not background.is_blocked(other):
            assert not written.done()
        assert queue.call("clear_policy_bits") is True

    written.result(timeout=60)
    assert queue.call("has_policies") is True


@pytest.mark.usefixtures("marked")
@pytest.mark.parametrize(
    "use",
    [
        "INSERT INTO messages.topic (topic, ttl) VALUES ('t', '1 s')",
        "INSERT INTO messages.subscription (topic, subscriber) VALUES ('t', 'u')",
    ],
)
def test_they_stay_while_an_uncommitted_policy_needs_them(queue: Queue, other: Queue, use: str) -> None:
    with other.conn.transaction():
        other.conn.execute(use.encode())

        assert queue.call("clear_policy_bits") is False

    assert queue.call("has_policies") is True


@pytest.mark.usefixtures("marked")
def test_they_stay_in_the_transaction_that_took_the_policy_back_since_it_may_be_rolled_back(queue: Queue) -> None:
    queue.policy("t", ttl="1 s")
    queue.call("clear_policy_bits")

    with queue.conn.transaction(force_rollback=True):
        queue.policy("t", ttl=None)
        assert queue.call("clear_policy_bits") is False

    assert queue.call("may_have_policy", "t") is True


@pytest.mark.usefixtures("marked")
def test_a_key_that_outlives_its_policy_is_freed_by_the_end_of_its_message(own_queue: Queue) -> None:
    queue = own_queue
    queue.policy("t", key_ttl="1 hour")
    queue.publish("t", key="k")
    queue.policy("t", key_ttl=None)
    queue.call("clear_policy_bits")

    queue.settle("complete", queue.claim("t"))

    assert queue.rows("SELECT FROM messages.held_key") == []
