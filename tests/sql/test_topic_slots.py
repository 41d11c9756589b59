"""messages.topic_slots: how many messages of a limited topic a claim may take."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.server.postgres import Database
from tests.sql.patience import give_time
from tests.sql.queue import Background, Queue

ROOM = "SELECT (messages.topic_slots(messages.claim_policy(%s, messages.now()), %s)).slots"


def room(queue: Queue, wanted: int = 100, topic: str = "t") -> int:
    return int(queue.value(ROOM, [topic, wanted]))


def test_what_runs_leaves_so_much_of_max_concurrency(queue: Queue) -> None:
    queue.policy(max_concurrency=5)
    queue.publish_many(3)
    assert room(queue) == 5

    queue.claim()

    assert room(queue) == 2


def test_it_is_never_more_than_was_wanted(queue: Queue) -> None:
    queue.policy(max_concurrency=5)

    assert room(queue, 3) == 3


def test_messages_with_and_without_a_channel_count_and_those_of_other_topics_do_not(queue: Queue) -> None:
    queue.policy(max_concurrency=5)
    queue.publish()
    queue.publish(channel="c")
    queue.publish_many(3, "u")
    queue.claim("t", "u")

    assert room(queue) == 3


def test_a_limit_that_was_lowered_below_what_runs_leaves_nothing(queue: Queue) -> None:
    queue.publish_many(5)
    queue.claim()

    queue.policy(max_concurrency=2)

    assert room(queue) == 0


def test_the_place_of_a_dead_worker_is_free_when_its_lock_was_ended_and_not_before(queue: Queue) -> None:
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
    give_time(queue, "lock_topic", "250ms")
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


def test_with_one_topics_lock_in_hand_the_next_is_only_tried(queue: Queue, other: Queue) -> None:
    """Else two claims that walk in opposite order would wait for each other."""
    queue.policy("*", max_concurrency=1)
    queue.publish("a")
    queue.publish("b")

    with queue.conn.transaction():
        queue.claim("b")
        with other.conn.transaction():
            claimed, left = other.claim_with_next_due("a", "b")

            assert [c.topic for c in claimed] == ["a"]
            assert other.call("next_due", ["a", "b"], left.held_back).total_seconds() == 0


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_transaction_that_cannot_see_what_others_have_claimed_is_refused(queue: Queue, level: str) -> None:
    queue.policy(max_concurrency=1)
    queue.publish()
    queue.conn.execute(f"SET default_transaction_isolation = '{level}'".encode())

    with pytest.raises(
        errors.ActiveSqlTransaction, match="topic t has limits, and this transaction cannot see"
    ) as caught:
        queue.claim()

    assert caught.value.diag.message_hint == "claim in a transaction with ISOLATION LEVEL READ COMMITTED"


def test_a_breakers_probes_bound_it(queue: Queue) -> None:
    queue.policy(breaker={"probes": 2}, max_concurrency=5)
    queue.conn.execute(
        "INSERT INTO messages.breaker (topic, position, probe_at) VALUES ('t', 'open', messages.now() - interval '1 s')"
    )

    assert room(queue) == 2
