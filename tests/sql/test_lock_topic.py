"""messages.lock_topic: claims of one limited topic count one after the other, and nobody is stuck behind one that never ends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.server.postgres import Database
from tests.sql.patience import give_time
from tests.sql.queue import Background, Queue


def test_it_is_held_until_the_transaction_ends(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        assert queue.call("lock_topic", "t") is True
        assert other.call("lock_topic", "t") is False

    assert other.call("lock_topic", "t") is True


def test_who_comes_second_gets_it_when_the_first_commits_soon(own_database: Database) -> None:
    queue, other, watcher = (Queue(own_database.connect()) for _ in range(3))
    background = Background(watcher.conn)
    give_time(queue, "lock_topic", "250ms")
    with queue.conn.transaction():
        queue.call("lock_topic", "t")
        second = background.start(other.call, "lock_topic", "t")
        while not background.is_blocked(other):
            assert not second.done()

    assert second.result(timeout=60) is True


def test_it_is_the_same_for_its_own_transaction_any_number_of_times(queue: Queue) -> None:
    with queue.conn.transaction():
        assert [queue.call("lock_topic", "t") for _ in range(2)] == [True, True]


def test_with_one_in_hand_another_is_tried_and_not_waited_for(queue: Queue, other: Queue) -> None:
    other.conn.execute("SET lock_timeout = '1ms'")
    with queue.conn.transaction(), other.conn.transaction():
        queue.call("lock_topic", "t")
        other.call("lock_topic", "u")

        assert other.call("lock_topic", "t") is False
        assert other.call("lock_topic", "v") is True


def test_the_callers_own_lock_timeout_is_as_it_was(queue: Queue, other: Queue) -> None:
    other.conn.execute("SET lock_timeout = '7s'")
    with queue.conn.transaction():
        queue.call("lock_topic", "t")
        with other.conn.transaction():
            other.call("lock_topic", "t")
            assert other.value("SHOW lock_timeout") == "7s"
    with other.conn.transaction():
        other.call("lock_topic", "t")
        assert other.value("SHOW lock_timeout") == "7s"


def test_who_claims_and_does_not_commit_keeps_no_other_topic_from_being_worked(queue: Queue, other: Queue) -> None:
    queue.policy("limited", max_concurrency=5)
    queue.publish_many(2, "limited")
    beside = queue.publish("other")
    with queue.conn.transaction():
        queue.claim("limited", limit=1)

        claimed, left = other.claim_with_next_due("limited", "other")
        assert [c.id for c in claimed] == [beside]
        assert left.held_back.keys() == {"topic limited"}
        assert other.call("next_due", ["limited", "other"], left.held_back).total_seconds() == 0


def test_two_that_walk_over_limited_topics_in_opposite_order_never_meet_in_a_deadlock(
    queue: Queue, other: Queue
) -> None:
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
