"""messages.claim with patterns of topics: which topics they bring, and how many messages of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from pgrouse.values import topic_pattern
from tests.sql.queue import Listener, Queue


def topics_of(claimed: list[Any]) -> list[str]:
    return sorted(each.topic for each in claimed)


def test_a_pattern_brings_the_messages_of_all_its_topics_and_of_no_other(queue: Queue) -> None:
    for topic in ("order", "orders", "orders.a", "orders.b", "orders.b.c", "orders-x", "orders.b.dlq", "ordersb", "p"):
        queue.conn.execute(
            "INSERT INTO messages.message (topic, payload, dlq_moved_at) VALUES (%s, '1', now())", [topic]
        )

    assert topics_of(queue.claim("orders.*")) == ["orders.a", "orders.b"]
    assert topics_of(queue.claim("orders.**")) == ["orders.b.c"]
    assert topics_of(queue.claim("**")) == ["order", "orders", "orders-x", "ordersb", "p"]


def test_topics_that_appear_later_are_claimed_as_well(queue: Queue) -> None:
    assert queue.claim("orders.*") == []
    queue.publish("orders.new")

    assert topics_of(queue.claim("orders.*")) == ["orders.new"]


def test_the_walk_goes_round_the_topics_of_a_pattern(queue: Queue) -> None:
    for topic in ("orders.a", "orders.b", "orders.c"):
        queue.publish_many(3, topic)

    brought = [queue.claim("orders.*", limit=1)[0].topic for _ in range(6)]

    assert brought == ["orders.a", "orders.b", "orders.c"] * 2


def test_a_pattern_has_its_slots_for_all_its_topics_together(queue: Queue) -> None:
    for nth in range(5):
        queue.publish_many(2, f"orders.{nth}")
    queue.publish_many(5, "other")

    claimed = queue.claim("orders.*", "other", slots=[3, None])

    assert topics_of(claimed) == ["orders.0", "orders.0", "orders.1", *["other"] * 5]


def test_the_slots_of_an_exact_name_win_over_those_of_a_pattern(queue: Queue) -> None:
    queue.publish_many(2, "orders.a")
    queue.publish_many(2, "orders.b")
    queue.publish_many(2, "orders.c.d")

    claimed = queue.claim("orders.*", "orders.**", "orders.a", slots=[None, 1, 0])

    assert topics_of(claimed) == ["orders.b", "orders.b", "orders.c.d"]
    assert queue.claim("orders.**", "orders.*", slots=[None, 0]) != []
    assert queue.claim("orders.**", "orders.*", slots=[0, 0]) == []


def test_what_has_no_slot_is_not_due(queue: Queue) -> None:
    queue.publish("orders.full")
    queue.publish("orders.later", wait="1 hour")

    _, left = queue.claim_with_next_due("orders.*", "orders.full", slots=[None, 0])

    assert 3500 < left.next_due_s <= 3600


def test_the_next_message_of_a_pattern_is_awaited(queue: Queue) -> None:
    queue.publish("orders.a.b", wait="1 minute")
    queue.publish("orders.b", wait="1 hour")

    assert 3500 < queue.call("next_due", ["orders.*"]).total_seconds() <= 3600
    assert 50 < queue.call("next_due", ["orders.**"]).total_seconds() <= 60
    assert queue.call("next_due", ["shop.**"]) is None


def test_the_message_of_a_notification_is_claimed_by_its_pattern(queue: Queue) -> None:
    queue.publish("orders.a")
    named, full = queue.publish("orders.b"), queue.publish("orders.c")

    claimed, _ = queue.claim_with_next_due("orders.*", "orders.c", slots=[None, 0], message_id=named)
    others, _ = queue.claim_with_next_due("orders.*", "orders.c", slots=[None, 0], message_id=full)

    assert [each.id for each in claimed] == [named]
    assert topics_of(others) == ["orders.a"]


def test_paused_topics_of_a_pattern_are_left_out(queue: Queue) -> None:
    for nth in range(30):
        queue.publish(f"orders.{nth:02}")
    for nth in range(20):
        queue.call("pause", f"orders.{nth:02}")

    claimed, left = queue.claim_with_next_due("orders.*", limit=5)

    assert len(claimed) == 5
    assert {each.topic for each in claimed} <= {f"orders.{nth:02}" for nth in range(20, 30)}
    assert len(queue.claim("orders.**")) == 5
    claimed, left = queue.claim_with_next_due("orders.*")
    assert (claimed, left.next_due_s) == ([], None)
    assert "topic orders.00" in left.held_back


def test_claims_of_many_patterns_bring_exactly_what_these_match(queue: Queue) -> None:
    chosen = random.Random(7)
    names = [
        ".".join(chosen.choice("abc") for _ in range(chosen.randint(1, 4))) + chosen.choice(["", "", "", ".dlq"])
        for _ in range(60)
    ]
    queue.conn.execute(
        "INSERT INTO messages.message (topic, payload, dlq_moved_at) SELECT t, '1', now() FROM unnest(%s::text[]) t",
        [names],
    )
    for _ in range(40):
        wanted = [
            chosen.choice(["a", "b", "a.b", "a.c.b", "c"]) + chosen.choice(["", ".*", ".**"])
            for _ in range(chosen.randint(1, 4))
        ]
        wanted = sorted(set(wanted))
        slots = [chosen.choice([None, None, 0]) for _ in wanted]
        free = {name for name, count in zip(wanted, slots, strict=True) if count is None}
        expected = sorted(name for name in names if topic_pattern.find(wanted, name) in free)

        with queue.conn.transaction(force_rollback=True):
            found = topics_of(queue.claim(*wanted, slots=slots, limit=1000))

        assert found == expected, (wanted, slots)


def test_a_pattern_with_a_limit_per_topic_takes_from_each(queue: Queue) -> None:
    queue.policy("orders.*", max_concurrency=1)
    queue.publish_many(3, "orders.a")
    queue.publish_many(3, "orders.b")

    assert topics_of(queue.claim("orders.*")) == ["orders.a", "orders.b"]
    assert queue.claim("orders.*") == []


@pytest.mark.parametrize("topic", ["orders.new", "orders.new.deep"])
def test_the_first_message_of_a_new_topic_wakes_a_sleeper_of_its_pattern(
    queue: Queue, listen: Callable[..., Listener], topic: str
) -> None:
    queue.arm(topics=["orders.**"])
    listener = listen("new_message")

    queue.publish("orders")
    queue.publish("orders.new.dlq", dlq_moved_at="2026-01-01")
    published = queue.publish(topic)

    assert listener.received() == [str(published)]


def test_a_topic_that_a_pattern_of_a_worker_matches_is_handled(queue: Queue) -> None:
    queue.call("register_worker", "w", "h", 1, "0", ["orders.*"], 1)
    queue.publish("orders.a")
    queue.publish("orders.a.b")

    assert [row[0] for row in queue.rows("SELECT messages.unhandled_topics()")] == ["orders.a.b"]
    assert queue.row("SELECT * FROM messages.topic_state(ARRAY['orders.a'])").state == "running"
    assert {(row.topic, row.handled) for row in queue.rows("SELECT * FROM messages.stats()")} == {
        ("orders.a", True),
        ("orders.a.b", False),
    }


def test_lists_of_topics_know_patterns(queue: Queue) -> None:
    for topic in ("orders", "orders.a", "orders.a.b", "ordersx"):
        queue.publish(topic)

    def listed(*patterns: str) -> list[str]:
        return [row[0] for row in queue.rows("SELECT messages.list_topics('', 100, %s)", [list(patterns)])]

    assert listed("orders.*") == ["orders.a"]
    assert listed("orders.**") == ["orders.a", "orders.a.b"]
    assert listed("orders*") == ["orders", "orders.a", "orders.a.b", "ordersx"]
    assert listed("orders") == ["orders"]
    assert queue.call("count_ready", ["orders.**", "orders"]) == 3
    assert [row[0] for row in queue.rows("SELECT messages.ready_topics(%s)", [["orders.*", "shop.*"]])] == ["orders.*"]


def test_a_claim_reads_as_much_with_thousands_of_topics_as_with_a_few(queue: Queue) -> None:
    def pages(topics: int) -> int:
        queue.conn.execute(
            "INSERT INTO messages.message (topic, payload)"
            " SELECT t || n, '1' FROM generate_series(1, %s) AS n, unnest(ARRAY['orders.', 'orders.eu.deep.']) AS t",
            [topics],
        )
        queue.conn.execute("VACUUM ANALYZE messages.message")
        # From the end of the topics: what no pattern wants is skipped, and the walk begins again.
        return queue.buffers(
            "SELECT messages.next_topic(ARRAY['orders.*', 'shop.**'], place, true, ARRAY['orders.*', 'shop.**'])"
            " FROM unnest(ARRAY['', 'orders.1', 'orders.eu.deep.1', 'orders.zzz', 'zzz']) AS w (place)"
        )

    few = pages(10)
    many = pages(5000)

    assert many <= 3 * few
