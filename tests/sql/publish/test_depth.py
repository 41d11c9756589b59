"""max_depth: a topic never has more messages, exactly, and no settle waits for a publisher."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.sql.queue import Background, Queue

# messages.add_depth: a topic with max_depth never has more messages, exactly, no matter how many sessions publish at
# the same time.


def is_full(caught: pytest.ExceptionInfo[psycopg.Error]) -> bool:
    return caught.value.sqlstate == "PGR01"


def publish_what_fits(by: Queue, count: int) -> int:
    """Publish this many in one statement and return how many were inserted: all or none."""
    try:
        return len(by.publish_many(count))
    except psycopg.Error as error:
        if error.sqlstate != "PGR01":
            raise
        return 0


def test_a_full_topic_refuses_a_publish_and_the_error_has_the_depth_and_the_fix(queue: Queue) -> None:
    queue.policy("t", max_depth=3)
    queue.publish_many(3)

    with pytest.raises(psycopg.Error) as caught:
        queue.publish_many(2)

    assert is_full(caught)
    assert caught.value.diag.message_primary == "topic t is full: max_depth is 3, and with 2 more it would hold 5"
    assert "raise max_depth" in (caught.value.diag.message_hint or "")
    assert queue.depth() == 3


@pytest.mark.parametrize("settle", ["complete", "fail", "reject"])
def test_each_end_of_a_message_makes_room_for_one_message(queue: Queue, settle: str) -> None:
    queue.policy("t", max_depth=2)
    queue.publish_many(2)
    queue.settle(settle, queue.claim(limit=1), *([] if settle == "complete" else [["boom"]]))

    queue.publish()

    assert queue.depth() == 2


def test_a_message_that_is_retried_makes_no_room(queue: Queue) -> None:
    queue.policy("t", max_depth=1, max_attempts=3)
    queue.publish()
    queue.settle("retry", queue.claim(), ["boom"])

    with pytest.raises(psycopg.Error) as caught:
        queue.publish()

    assert is_full(caught)


def test_a_topic_without_a_limit_has_no_counter(queue: Queue) -> None:
    queue.policy("t", max_depth=1)
    queue.publish_many(10, "other")

    assert queue.depth("other") is None


def test_the_default_limit_applies_to_each_topic_and_0_lifts_it(queue: Queue) -> None:
    queue.policy("*", max_depth=1)
    queue.policy("free", max_depth=0)
    queue.publish_many(10, "free")
    queue.publish("a")
    queue.publish("b")

    with pytest.raises(psycopg.Error) as caught:
        queue.publish("a")

    assert is_full(caught)


def test_a_limit_that_is_set_later_counts_the_existing_messages(queue: Queue) -> None:
    queue.publish_many(2)
    queue.publish(wait="1 hour")
    queue.publish_many(2, channel="c")
    queue.publish("other")
    queue.claim(limit=1)
    queue.policy("t", max_depth=6)

    queue.publish()

    assert queue.depth() == 6


def test_a_limit_below_the_depth_refuses_publishes_until_enough_messages_have_ended(queue: Queue) -> None:
    queue.publish_many(5)
    queue.policy("t", max_depth=3)

    with pytest.raises(psycopg.Error) as caught:
        queue.publish()
    queue.settle("complete", queue.claim(limit=3))
    queue.publish()

    assert is_full(caught)


def test_a_rollback_also_to_a_savepoint_takes_the_count_back(queue: Queue) -> None:
    queue.policy("t", max_depth=5)
    with queue.conn.transaction():
        queue.publish()
        with queue.conn.transaction(force_rollback=True):
            queue.publish_many(3)
        with pytest.raises(psycopg.Error), queue.conn.transaction():
            queue.publish_many(5)
        queue.publish()

    assert queue.depth() == 2


def test_a_bulk_copy_is_counted_once_and_inserted_as_a_whole_or_not_at_all(queue: Queue) -> None:
    queue.policy("t", max_depth=3000)

    def copy(count: int) -> None:
        with queue.conn.cursor().copy("COPY messages.message (topic, payload) FROM STDIN") as copying:
            copying.write("t\t1\n" * count)

    copy(2000)
    with pytest.raises(psycopg.Error) as caught:
        copy(2000)

    assert is_full(caught)
    assert queue.depth() == 2000


def test_keys_that_wait_already_need_no_room(queue: Queue) -> None:
    queue.policy("t", max_depth=1)
    first = queue.send(1, key="k")

    replaced = queue.send(2, key="k", on_conflict="replace")
    queue.conn.execute(
        "INSERT INTO messages.message (topic, key, payload) VALUES ('t', 'k', '3') ON CONFLICT DO NOTHING"
    )

    assert tuple(replaced) == (first.id, "replaced")
    assert queue.depth() == 1


def test_redriven_messages_are_counted_and_never_refused(queue: Queue) -> None:
    queue.policy("t", max_depth=1)
    dead = queue.publish()
    queue.settle("fail", queue.claim(), ["boom"])
    queue.publish()

    queue.rows("SELECT * FROM messages.redrive(%s)", [[dead]])

    assert queue.depth() == len(queue.ids()) == 2


def test_a_redrive_waits_for_no_publisher_and_the_next_publisher_counts_it(queue: Queue, other: Queue) -> None:
    queue.policy("t", max_depth=2)
    dead = queue.publish()
    queue.settle("fail", queue.claim(), ["boom"])
    queue.conn.execute("SET lock_timeout = '1s'")
    with other.conn.transaction():
        other.publish()
        queue.rows("SELECT * FROM messages.redrive(%s)", [[dead]])

    with pytest.raises(psycopg.Error) as caught:
        other.publish()

    assert is_full(caught)
    assert queue.depth() == len(queue.ids()) == 2


def test_a_redrive_before_the_counter_exists_is_counted_once(queue: Queue, other: Queue) -> None:
    dead = queue.publish()
    queue.settle("fail", queue.claim(), ["boom"])
    queue.policy("t", max_depth=3)
    with queue.conn.transaction():
        queue.rows("SELECT * FROM messages.redrive(%s)", [[dead]])
        other.publish()
    queue.publish()

    assert queue.depth() == len(queue.ids()) == 3


def test_a_publisher_waits_for_an_uncommitted_one_and_then_counts_its_messages(
    queue: Queue, other: Queue, background: Background
) -> None:
    queue.policy("t", max_depth=1)
    with other.conn.transaction(force_rollback=True):
        other.publish()
        second = background.start_blocked(queue, queue.publish)

    assert queue.ids() == [second.result(timeout=60)]


def test_many_concurrent_publishers_fill_a_topic_exactly(
    queue: Queue, other: Queue, third: Queue, background: Background
) -> None:
    queue.policy("t", max_depth=100)

    def publish(by: Queue) -> int:
        return sum(publish_what_fits(by, 1 + n % 3) for n in range(80))

    published = [background.start(publish, by) for by in (queue, other, third)]

    assert sum(each.result(60) for each in published) == 100
    assert len(queue.ids()) == queue.depth() == 100


def test_concurrent_ends_and_rollbacks_let_the_topic_be_filled_to_its_limit_and_no_further(
    queue: Queue, other: Queue, third: Queue, background: Background
) -> None:
    queue.policy("t", max_depth=30)

    def publish(by: Queue) -> int:
        return sum(publish_what_fits(by, 1 + n % 3) for n in range(150))

    def work(by: Queue) -> int:
        ended = 0
        for n in range(80):
            claimed = by.claim(limit=5)
            with by.conn.transaction(force_rollback=n % 4 == 0):
                by.settle("complete", claimed[1:])
                by.settle("fail", claimed[:1], ["boom"] * len(claimed[:1]))
            ended += 0 if n % 4 == 0 else len(claimed)
            assert by.value("SELECT count(*) FROM messages.message") <= 30
            if n % 4 == 0:
                by.settle("release", claimed)
            if n % 10 == 0:
                by.call("recount_depth", 1.0)
        return ended

    publishing = [background.start(publish, by) for by in (queue, other)]
    ended = background.start(work, third).result(60)
    published = sum(each.result(60) for each in publishing)

    assert published - ended == len(queue.ids()) == queue.depth()
    free = 30 - len(queue.ids())
    assert publish_what_fits(queue, free + 1) == 0
    assert publish_what_fits(queue, free) == free


def test_bulk_publishers_of_several_topics_in_opposite_order_do_not_deadlock(
    queue: Queue, other: Queue, background: Background
) -> None:
    queue.policy("*", max_depth=1_000_000)
    insert = "INSERT INTO messages.message (topic, payload) SELECT topic, '1' FROM unnest(%s::text[]) AS topic"

    def publish(by: Queue, topics: list[str]) -> None:
        for _ in range(100):
            by.conn.execute(insert, [topics])

    publishing = [
        background.start(publish, queue, ["a", "b", "c"] * 20),
        background.start(publish, other, ["c", "b", "a"] * 20),
    ]

    for each in publishing:
        each.result(60)
    assert [queue.depth(topic) for topic in "abc"] == [4000, 4000, 4000]


def test_above_read_committed_a_publisher_with_an_older_snapshot_has_to_try_again(queue: Queue, other: Queue) -> None:
    queue.policy("t", max_depth=2)
    queue.publish()
    queue.conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

    def publish_after_another() -> None:
        with queue.conn.transaction():
            queue.rows("SELECT 1 FROM messages.message")
            other.publish()
            queue.publish()

    with pytest.raises(errors.SerializationFailure):
        publish_after_another()

    assert other.depth() == 2


# messages.subtract_depth: ended messages make room, and no settle waits for another one, or for a publisher.

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


def test_settles_by_kind_in_opposite_orders_do_not_wait_for_each_other(sessions: tuple[Queue, Queue]) -> None:
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
        for _ in repeat(None, 20):
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


# messages.lock_depth: the counter of a topic, created by counting at its first use.


def test_the_transaction_has_its_id_before_it_waits(queue: Queue, other: Queue, background: Background) -> None:
    queue.call("lock_depth", "t")
    with other.conn.transaction():
        other.call("lock_depth", "t")
        waiting = background.start_blocked(queue, queue.call, "lock_depth", "t")
        xid = other.value("SELECT backend_xid FROM pg_stat_activity WHERE pid = %s", [queue.conn.info.backend_pid])

    assert waiting.result(timeout=60) == 0
    assert xid is not None
