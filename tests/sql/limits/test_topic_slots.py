"""The slots of topics, and the isolation that exact limits need."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from psycopg import errors

from tests.server.postgres import Database
from tests.sql.lock_timeouts import extend_timeout
from tests.sql.queue import Background, Queue

# messages.topic_slots: how many messages of a limited topic a claim may take.

ROOM = "SELECT (messages.topic_slots(messages.claim_policy(%s, messages.now()), 'w', %s)).slots"


def room(queue: Queue, wanted: int = 100, topic: str = "t") -> int:
    return int(queue.value(ROOM, [topic, wanted]))


def test_messages_with_and_without_a_channel_count_and_those_of_other_topics_do_not(queue: Queue) -> None:
    queue.policy(max_concurrency=5)
    queue.publish()
    queue.publish(channel="c")
    queue.publish_many(3, "u")
    queue.claim("t", "u")

    assert room(queue) == 3


def test_a_limit_below_the_running_messages_leaves_no_slot(queue: Queue) -> None:
    queue.publish_many(5)
    queue.claim()

    queue.policy(max_concurrency=2)

    assert room(queue) == 0


def test_the_slot_of_a_dead_worker_is_free_once_its_lock_was_ended_and_not_before(queue: Queue) -> None:
    queue.policy(max_concurrency=1, lock_duration="10 s", max_attempts=2, lock_expired_delay="0")
    queue.publish()
    queue.claim()

    queue.later("9.9 s")
    queue.call("expire_locks")
    assert room(queue) == 0

    queue.later("0.2 s")
    queue.call("expire_locks")
    assert room(queue) == 1


def test_the_rate_bounds_it_too(queue: Queue) -> None:
    queue.later("0")
    queue.policy(max_concurrency=50, dequeue_rate=10, burst=4)
    queue.publish_many(9)

    assert room(queue) == 4
    queue.claim(limit=3)
    assert room(queue) == 1
    queue.later("0.2 s")
    assert room(queue) == 3


def test_claims_of_one_topic_count_one_after_the_other(own_database: Database) -> None:
    queue, other, watcher = (Queue(own_database.connect()) for _ in range(3))
    background = Background(watcher.conn)
    extend_timeout(queue, "lock_topic", "250ms")
    queue.policy(max_concurrency=1)
    queue.publish_many(2)

    with queue.conn.transaction():
        first = queue.claim(limit=1)
        second = background.start(other.claim)
        while not background.is_blocked(other):
            assert not second.done()

    assert (len(first), second.result(timeout=60)) == (1, [])


def test_claims_of_different_topics_do_not_wait_for_each_other(queue: Queue, other: Queue) -> None:
    queue.policy("t", max_concurrency=1)
    queue.policy("u", max_concurrency=1)
    queue.publish("t")
    queue.publish("u")

    with queue.conn.transaction():
        queue.claim("t")

        assert len(other.claim("u")) == 1


def test_while_one_topic_is_locked_the_lock_of_the_next_is_only_tried(queue: Queue, other: Queue) -> None:
    """Otherwise two claims in opposite order would deadlock."""
    queue.policy("*", max_concurrency=1)
    queue.publish("a")
    queue.publish("b")

    with queue.conn.transaction():
        queue.claim("b")
        with other.conn.transaction():
            claimed, left = other.claim_with_next_due("a", "b")

            assert [c.topic for c in claimed] == ["a"]
            assert other.call("next_due", ["a", "b"], left.held_back).total_seconds() == 0


def test_the_probes_of_a_breaker_bound_it(queue: Queue) -> None:
    queue.policy(breaker={"probes": 2}, max_concurrency=5)
    queue.conn.execute(
        "INSERT INTO messages.breaker (topic, position, probe_at) VALUES ('t', 'open', messages.now() - interval '1 s')"
    )

    assert room(queue) == 2


# messages.lock_topic: claims of one limited topic count one after the other, and a claim that never ends blocks no
# other for long.


def test_its_own_transaction_can_lock_it_any_number_of_times(queue: Queue) -> None:
    with queue.conn.transaction():
        assert [queue.call("lock_topic", "t") for _ in range(2)] == [True, True]


def test_the_callers_own_lock_timeout_is_not_changed(queue: Queue, other: Queue) -> None:
    other.conn.execute("SET lock_timeout = '7s'")
    with queue.conn.transaction():
        queue.call("lock_topic", "t")
        with other.conn.transaction():
            other.call("lock_topic", "t")
            assert other.value("SHOW lock_timeout") == "7s"
    with other.conn.transaction():
        other.call("lock_topic", "t")
        assert other.value("SHOW lock_timeout") == "7s"


def test_an_open_claim_prevents_no_other_topic_from_being_run(queue: Queue, other: Queue) -> None:
    queue.policy("limited", max_concurrency=5)
    queue.publish_many(2, "limited")
    beside = queue.publish("other")
    with queue.conn.transaction():
        queue.claim("limited", limit=1)

        claimed, left = other.claim_with_next_due("limited", "other")
        assert [c.id for c in claimed] == [beside]
        assert left.held_back.keys() == {"topic limited"}
        assert other.call("next_due", ["limited", "other"], left.held_back).total_seconds() == 0


def test_two_walks_over_limited_topics_in_opposite_order_never_deadlock(queue: Queue, other: Queue) -> None:
    queue.policy("*", max_concurrency=1000)
    for topic in ("a", "b", "c"):
        queue.publish_many(300, topic)

    def drain(each: Queue, after: str) -> int:
        got = 0
        while each.rows("SELECT FROM messages.message WHERE claim_id IS NULL LIMIT 1"):
            with each.conn.transaction():
                claimed = each.claim("a", "b", "c", limit=7, after_topic=after)
                each.settle("complete", claimed)
            got += len(claimed)
        return got

    with ThreadPoolExecutor(2) as threads:
        got = sum(threads.map(drain, (queue, other), ("a", "b")))

    assert got == 900


BREAKER = {"min_attempts": 2, "pause": "30s", "probes": 1}
OLD_ROOM = (
    "SELECT s.slots, s.look_again_at - messages.now() > '29 s' AS is_later "
    "FROM messages.topic_slots(%s::messages.policy, 'w', 9) AS s"
)


@pytest.fixture
def probing(queue: Queue) -> Queue:
    """A queue whose breaker opened, after its pause."""
    open_breaker(queue)
    return queue


def open_breaker(queue: Queue) -> None:
    queue.policy(breaker=BREAKER)
    queue.publish_many(9)
    queue.settle("fail", queue.claim(limit=2), ["boom"] * 2)
    queue.later("31 s")


def test_a_probe_that_failed_since_the_policy_was_read_leaves_no_slot(probing: Queue) -> None:
    policy = probing.value("SELECT messages.claim_policy('t', messages.now())::text")
    assert probing.row(OLD_ROOM, [policy]).slots == 1

    probing.settle("fail", probing.claim(), ["boom"])

    found = probing.row(OLD_ROOM, [policy])
    assert (found.slots, found.is_later) == (0, True)


def test_a_probe_that_succeeded_since_leaves_the_slots_of_a_probe(probing: Queue) -> None:
    policy = probing.value("SELECT messages.claim_policy('t', messages.now())::text")

    probing.settle("complete", probing.claim())

    assert probing.row(OLD_ROOM, [policy]).slots == 1


def test_a_probe_whose_end_is_not_counted_yet_leaves_no_slot(own_database: Database) -> None:
    queue, other = Queue(own_database.connect()), Queue(own_database.connect())
    open_breaker(queue)
    with other.conn.transaction():
        other.conn.execute("SELECT FROM messages.breaker FOR UPDATE")
        queue.settle("fail", queue.claim(), ["boom"])

    assert room(queue) == 0

    queue.value("SELECT messages.update_breakers()")
    assert queue.claim() == []
    assert queue.value("SELECT reason FROM messages.breaker") == "1 of 1 probes failed"


# messages.check_isolation: counting running messages needs a new snapshot for each statement.


@pytest.mark.parametrize(
    "settings", [{"max_concurrency": 1}, {"channel_concurrency": 1}, {"ordered": True}, {"channel_min_interval": "1 s"}]
)
def test_a_claim_under_a_limit_is_refused_above_it(queue: Queue, settings: dict[str, Any]) -> None:
    queue.policy(**settings)
    queue.publish(channel="c")

    for level in ("REPEATABLE READ", "SERIALIZABLE"):
        queue.conn.execute(f"SET default_transaction_isolation = '{level}'".encode())
        with pytest.raises(errors.ActiveSqlTransaction, match="topic t has limits, and this transaction") as caught:
            queue.claim()
        assert caught.value.diag.message_hint == "claim in a transaction with ISOLATION LEVEL READ COMMITTED"


def test_topics_without_limits_may_be_claimed_at_any_level(queue: Queue) -> None:
    queue.publish()

    with queue.conn.transaction():
        queue.conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")

        assert len(queue.claim()) == 1


# messages.lock_channels: the rows that prevent two claims from counting the same channel at once.

LOCK = """
    SELECT l.channel
    FROM unnest(messages.lock_channels('t', %s::text[])) WITH ORDINALITY
      AS l (kind, topic, channel, free_at, blocked_until, blocked_by, nth)
    ORDER BY l.nth
"""


def lock(queue: Queue, *channels: str) -> list[str | None]:
    return [row.channel for row in queue.rows(LOCK, [list(channels)])]


@pytest.mark.parametrize("known", [True, False])
def test_two_transactions_can_lock_ten_thousand_channels_each(queue: Queue, other: Queue, known: bool) -> None:
    channels = [f"c{n:05}" for n in range(10_000)]
    if known:
        lock(queue, *channels)

    with queue.conn.transaction():
        assert lock(queue, *channels) == channels

        assert lock(other, *channels) == [None] * 10_000
        assert lock(other, "another") == (["another"] if known else [None])


# messages.create_channel_rates: the rows of channels that were never counted before.
