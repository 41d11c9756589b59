"""Policies of patterns: which settings a topic gets, and that everything that reads a policy knows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import errors

from tests.sql.queue import Listener, Queue


def test_a_setting_is_the_topics_own_else_that_of_the_most_specific_pattern_that_sets_it(queue: Queue) -> None:
    queue.policy("*", max_attempts=1, timeout="1 s")
    queue.policy("**", max_attempts=2, lock_duration="2 s")
    queue.policy("orders.**", max_attempts=3, timeout="3 s")
    queue.policy("orders.*", max_attempts=4)
    queue.policy("orders.paid", max_attempts=5)
    for topic in ("orders.paid", "orders.sent", "orders.eu.paid", "shop"):
        queue.publish(topic)

    found = {each.topic: each for each in queue.claim("**")}

    assert {topic: (each.max_attempts, each.timeout_s, each.lock_duration_s) for topic, each in found.items()} == {
        "orders.paid": (5, 3.0, 2.0),
        "orders.sent": (4, 3.0, 2.0),
        "orders.eu.paid": (3, 3.0, 2.0),
        "shop": (2, 1.0, 2.0),
    }


def test_a_change_of_any_row_counts_at_once(queue: Queue) -> None:
    queue.policy("orders.*", max_attempts=4)
    queue.publish_many(4, "orders.paid")

    def next_limit() -> Any:
        return queue.claim_one("orders.paid").max_attempts

    assert next_limit() == 4
    queue.policy("orders.*", max_attempts=None)
    assert next_limit() == 1
    queue.policy("*", max_attempts=7)
    assert next_limit() == 7
    queue.policy("orders.*", max_attempts=4)
    queue.conn.execute("DELETE FROM messages.topic WHERE topic = 'orders.*'")
    assert next_limit() == 7


def test_a_change_with_an_old_snapshot_fails_and_leaves_out_no_pattern(queue: Queue, other: Queue) -> None:
    with other.conn.transaction(force_rollback=True):
        other.conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.rows("SELECT FROM messages.topic")
        queue.policy("orders.*", max_attempts=4)
        with pytest.raises(errors.SerializationFailure):
            other.conn.execute("UPDATE messages.topic SET timeout = '7 s' WHERE topic = '*'")


def test_a_limit_of_a_pattern_holds_for_each_of_its_topics(queue: Queue, other: Queue) -> None:
    queue.policy("orders.*", max_concurrency=2)
    for topic in ("orders.a", "orders.b"):
        queue.publish_many(5, topic)

    first = queue.claim("orders.a", "orders.b", worker="one")
    second = other.claim("orders.*", worker="two")

    assert sorted(each.topic for each in first) == ["orders.a", "orders.a", "orders.b", "orders.b"]
    assert second == []


def test_a_topic_with_a_policy_only_from_a_pattern_is_not_plain(queue: Queue) -> None:
    assert queue.row("SELECT * FROM messages.plain_policy('orders.a')").is_plain
    queue.policy("orders.**", ordered=True)

    assert not queue.row("SELECT * FROM messages.plain_policy('orders.a')").is_plain
    assert queue.row("SELECT * FROM messages.plain_policy('orders')").is_plain


def test_a_pause_of_a_pattern_stops_its_topics_and_is_named(queue: Queue) -> None:
    paused, other = queue.publish("orders.a"), queue.publish("orders")
    queue.call("pause", "orders.*", "maintenance")

    assert [each.id for each in queue.claim("orders.a", "orders", "orders.*")] == [other]
    state = queue.row("SELECT * FROM messages.topic_state(ARRAY['orders.a'])")
    assert (state.state, state.paused_topic, state.paused_reason) == ("paused", "orders.*", "maintenance")
    (reason,) = [row for row in queue.rows("SELECT * FROM messages.explain(%s)", [paused]) if row.code == "paused"]
    assert "orders.*" in reason.reason

    assert queue.call("resume", "orders.*")
    assert [each.id for each in queue.claim("orders.*")] == [paused]


def test_a_resumed_pattern_wakes_its_sleepers(queue: Queue, listen: Callable[..., Listener]) -> None:
    queue.call("pause", "orders.*")
    queue.publish("orders.a")
    queue.publish("orders.b.c")
    queue.arm(topics=["orders.**"])
    listener = listen("new_message")

    queue.call("resume", "orders.*")

    assert listener.received() == ["orders.a"]


def test_the_pause_of_any_pattern_holds_until_the_last_has_ended(queue: Queue) -> None:
    queue.publish("orders.a")
    queue.call("pause", "orders.**", resume_in="1 hour")
    queue.call("pause", "orders.*", resume_in="1 minute")

    queue.later("2 minutes")
    assert queue.claim("orders.*") == []
    queue.later("1 hour")
    assert len(queue.claim("orders.*")) == 1


def test_thousands_of_topics_below_a_paused_pattern_cost_a_claim_no_more_than_a_few(queue: Queue) -> None:
    for table in ("a", "b"):
        queue.conn.execute(
            "INSERT INTO messages.message (topic, payload) SELECT %s || n, '1' FROM generate_series(1, 2000) n",
            [f"orders.{table}"],
        )
    queue.publish("shop.x")
    queue.conn.execute("ANALYZE messages.message")
    queue.call("pause", "orders.**")

    claim = "SELECT count(*) FROM messages.claim('w', ARRAY['orders.**', 'shop.**'], 1)"
    pages = queue.buffers(claim)

    assert pages < 1500


def test_publishing_keeps_to_the_policy_of_a_pattern(queue: Queue) -> None:
    queue.policy("orders.*", max_depth=1, max_payload_bytes=100, ttl="1 hour")

    published = queue.publish("orders.a")
    assert queue.message(published).expires_at is not None
    with pytest.raises(errors.Error) as full:
        queue.publish("orders.a")
    with pytest.raises(errors.Error) as large:
        queue.publish("orders.b", payload={"x": "x" * 200})
    queue.publish_many(2, "orders.b.c", payload={"x": "x" * 200})
    assert (full.value.sqlstate, large.value.sqlstate) == ("PGR01", "PGR04")


def test_retries_and_the_archive_keep_to_the_policy_of_a_pattern(queue: Queue) -> None:
    queue.policy(
        "orders.*",
        max_attempts=2,
        backoff={"kind": "constant", "base": "1h", "jitter": 0},
        archive_success="none",
        dead_letter=True,
    )
    retried, completed = queue.publish("orders.a"), queue.publish("orders.b")
    claimed = {each.id: each for each in queue.claim("orders.*")}

    queue.settle("retry", [claimed[retried]], ["boom"])
    queue.settle("complete", [claimed[completed]])

    assert queue.value("SELECT available_at > now() + '50 minutes' FROM messages.message WHERE id = %s", [retried])
    assert queue.archived(completed) is None
    queue.later("2 hours")
    queue.settle("retry", queue.claim("orders.*"), ["boom"])
    assert queue.value("SELECT topic FROM messages.message") == "orders.a.dlq"


def test_explain_names_the_pattern_of_a_limit_and_of_a_handler(queue: Queue) -> None:
    queue.call("register_worker", "w", "h", 1, "0", ["orders.*"], 1)
    queue.policy("orders.*", max_concurrency=1)
    first, second = queue.publish("orders.a"), queue.publish("orders.a")

    (ready,) = queue.rows("SELECT * FROM messages.explain(%s)", [first])
    queue.claim("orders.*")
    (full,) = queue.rows("SELECT * FROM messages.explain(%s)", [second])

    assert (ready.code, ready.detail["patterns"]) == ("ready", ["orders.*"])
    assert "by the pattern orders.*" in ready.reason
    assert (full.code, full.detail["set_by"]) == ("topic_full", "orders.*")
    assert "has reached its limit of 1, which orders.* sets; running on w" in full.reason


def test_the_breaker_of_a_pattern_opens_for_the_topic_that_fails(queue: Queue) -> None:
    queue.policy("orders.*", breaker={"failure_rate": 0.5, "min_attempts": 2, "window": "1m", "pause": "1m"})
    queue.publish_many(2, "orders.a")
    queue.publish("orders.b")

    queue.settle("fail", queue.claim("orders.a"), ["boom", "boom"])
    queue.publish("orders.a")

    assert queue.row("SELECT * FROM messages.topic_state(ARRAY['orders.a'])").breaker == "open"
    assert [each.topic for each in queue.claim("orders.*")] == ["orders.b"]
    queue.conn.execute("DELETE FROM messages.topic WHERE topic = 'orders.*'")
    queue.call("update_breakers")
    assert [each.topic for each in queue.claim("orders.*")] == ["orders.a"]


def test_notify_of_a_pattern_holds_for_its_topics(queue: Queue, listen: Callable[..., Listener]) -> None:
    queue.policy("orders.*", notify="always")
    queue.policy("quiet.*", notify="off")
    queue.arm(topics=["quiet.*"])
    listener = listen("new_message")

    loud = queue.publish("orders.a")
    queue.publish("quiet.a")

    assert listener.received() == [str(loud)]


def test_the_retention_of_a_pattern_deletes_what_its_topics_archived(queue: Queue) -> None:
    queue.policy("*", retention="300 days")
    queue.policy("orders.**", retention="10 days")
    queue.policy("orders.kept", retention="200 days")
    topics = ("orders.a", "orders.kept", "orders.b.c", "shop")
    for topic in topics:
        queue.publish(topic)
    queue.settle("complete", queue.claim(*topics))
    queue.call("maintain_partitions")
    queue.conn.execute(
        "UPDATE messages.message_archive SET archived_at = date_trunc('day', now()) - interval '20 days'"
    )

    queue.call("purge", 1000000)

    left = queue.rows("SELECT topic FROM messages.message_archive ORDER BY topic")
    assert [row.topic for row in left] == ["orders.kept", "shop"]


def test_the_bits_are_cleared_once_no_pattern_has_a_policy(queue: Queue) -> None:
    flag = "SELECT pg_sequence_last_value('messages.pattern_flag')"
    assert queue.value(flag) == 1
    queue.policy("orders.*", max_depth=1)
    assert queue.value(flag) == 3
    assert queue.value("SELECT messages.may_have_policy('whatever')")

    queue.conn.execute("DELETE FROM messages.topic WHERE topic = 'orders.*'")
    queue.call("prune")

    assert queue.value(flag) == 1
    assert not queue.value("SELECT messages.may_have_policy('whatever')")


@pytest.mark.parametrize("topic", ["orders.*.x", "*.orders", "or*", "***", "orders.***", ".*", "a b.*", "*x", "-.*"])
def test_a_star_is_only_the_last_level(queue: Queue, topic: str) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="is no name of a topic"):
        queue.policy(topic, max_attempts=1)


def test_every_setting_is_inherited(queue: Queue) -> None:
    columns = "SELECT attname::text FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"

    assert queue.rows(columns, ["messages.topic"]) == queue.rows(columns, ["messages.inherited_policy"])


def test_a_key_is_held_as_the_policy_of_a_pattern_says(queue: Queue) -> None:
    queue.policy("orders.*", key_ttl="1 hour")
    queue.send(1, "orders.a", key="k")

    queue.settle("complete", queue.claim("orders.*"))

    assert queue.send(1, "orders.a", key="k", on_conflict="ignore").outcome == "held"
    assert queue.send(1, "shop.a", key="k", on_conflict="ignore").outcome == "inserted"
