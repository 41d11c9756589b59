"""messages.subtract_depth: ended messages make room, and no settle waits for another one, or for a publisher."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import psycopg
import pytest

from tests.sql.queue import Background, Queue

TOPICS = "abcd"


@pytest.fixture
def sessions(queue: Queue, other: Queue) -> tuple[Queue, Queue]:
    """Two connections that settle topics with max_depth; each of them gets an error instead of waiting for a lock."""
    queue.policy("*", max_depth=1_000_000)
    for session in (queue, other):
        session.conn.execute("SET lock_timeout = '100ms'")
        session.conn.execute("SET deadlock_timeout = '100ms'")
    return queue, other


def held(by: Queue, *topics: str) -> Iterator[list[Any]]:
    """Publish to these topics and claim: for each topic in turn a list of the one message that is held."""
    for topic in topics:
        by.publish(topic)
    claimed = {each.topic: each for each in by.claim(*topics)}
    return ([claimed[topic]] for topic in topics)


def test_the_depth_of_each_topic_is_lowered_by_its_ended_messages(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.depth VALUES ('a', 10), ('b', 10), ('c', 10)")

    queue.rows("SELECT messages.subtract_depth(%s)", [["b", "a", "b", "unknown"]])

    assert [queue.depth(topic) for topic in "abc"] == [9, 8, 10]
    assert queue.rows("SELECT * FROM messages.depth_change ORDER BY topic") == [("a", -1), ("b", -2)]


def test_a_settle_that_is_rolled_back_makes_no_room(queue: Queue) -> None:
    queue.policy(max_depth=2)
    queue.publish_many(2)
    claimed = queue.claim()
    with queue.conn.transaction(force_rollback=True):
        queue.settle("complete", claimed)

    with pytest.raises(psycopg.Error, match="topic t is full"):
        queue.publish()
    assert queue.depth() == 2


def test_an_end_makes_room_once_it_is_committed_and_not_before(queue: Queue, other: Queue) -> None:
    queue.policy(max_depth=1)
    queue.publish()
    claimed = queue.claim()
    other.conn.execute("SET lock_timeout = '1s'")
    with queue.conn.transaction():
        queue.settle("complete", claimed)
        with pytest.raises(psycopg.Error, match="topic t is full"):
            other.publish()

    published = other.publish()
    assert other.ids() == [published]


def test_settles_by_kind_in_opposite_orders_do_not_wait_for_each_other(
    sessions: tuple[Queue, Queue],
) -> None:
    first, second = sessions
    one_a, one_b = held(first, "a", "b")
    two_a, two_b = held(second, "a", "b")

    with first.conn.transaction(), second.conn.transaction():
        first.settle("complete", one_b)
        second.settle("complete", two_a)
        first.settle("fail", one_a, ["boom"])
        second.settle("fail", two_b, ["boom"])

    assert [first.depth(topic) for topic in "ab"] == [0, 0]


def test_settles_with_dead_letters_of_limited_topics_do_not_either(sessions: tuple[Queue, Queue]) -> None:
    first, second = sessions
    first.policy("*", dead_letter=True)
    one_a, one_b = held(first, "a", "b")
    two_a, two_b = held(second, "a", "b")

    with first.conn.transaction(), second.conn.transaction():
        first.settle("fail", one_b, ["boom"])
        second.settle("fail", two_a, ["boom"])
        first.settle("reject", one_a, ["boom"])
        second.settle("reject", two_b, ["boom"])
    first.call("recount_depth")

    assert [first.depth(topic) for topic in ("a", "b", "a.dlq", "b.dlq")] == [0, 0, 2, 2]


def test_a_redrive_that_cancels_copies_does_not_either(sessions: tuple[Queue, Queue]) -> None:
    first, second = sessions
    first.policy("*", dead_letter=True)
    ((dead,),) = held(first, "a")
    first.settle("fail", [dead], ["boom"])
    ((failing,),) = held(second, "a")

    with first.conn.transaction(), second.conn.transaction():
        first.rows("SELECT * FROM messages.redrive(%s)", [[dead.id]])
        second.settle("fail", [failing], ["boom"])
        first.publish("other")
    first.call("recount_depth")

    assert [first.depth(topic) for topic in ("a", "a.dlq")] == [1, 1]


def test_a_settle_does_not_wait_for_an_open_publisher(sessions: tuple[Queue, Queue]) -> None:
    settler, publisher = sessions
    (claimed,) = held(settler, "a")

    with publisher.conn.transaction():
        publisher.publish("a")
        settler.settle("complete", claimed)

    assert settler.depth("a") == 1


def test_concurrent_settles_of_many_limited_topics_never_deadlock(
    queue: Queue, other: Queue, third: Queue, background: Background
) -> None:
    queue.policy("*", max_depth=1_000_000, dead_letter=True)
    queue.conn.execute(
        "INSERT INTO messages.message (topic, payload) SELECT chr(97 + n % 4), '1' FROM generate_series(1, 1200) AS n"
    )

    def work(by: Queue, seed: int) -> None:
        chance = random.Random(seed)
        by.conn.execute("SET deadlock_timeout = '100ms'")
        claimed: list[Any] = []
        for _ in repeat(None, 40):
            with by.conn.transaction():
                done = {each.id for each in claimed if chance.random() < 0.6}
                by.settle("complete", [each for each in claimed if each.id in done])
                failed = [each for each in claimed if each.id not in done]
                by.settle("fail", failed, ["boom"] * len(failed))
                claimed = [each for topic in chance.sample(TOPICS, 4) for each in by.claim(topic, limit=2)]
        by.settle("release", claimed)

    working = [background.start(work, by, seed) for seed, by in enumerate((queue, other, third))]
    for each in working:
        each.result(60)
    queue.call("recount_depth")

    count = "SELECT count(*) FROM messages.message WHERE topic = %s"
    topics = [*TOPICS, *(f"{topic}.dlq" for topic in TOPICS)]
    assert [queue.depth(topic) or 0 for topic in topics] == [queue.value(count, [topic]) for topic in topics]
