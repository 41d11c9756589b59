"""messages.add_depth: a topic with max_depth never has more messages, exactly, no matter how many sessions publish at the same time."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.sql.queue import Background, Queue


def is_full(caught: pytest.ExceptionInfo[psycopg.Error]) -> bool:
    return caught.value.sqlstate == "PGR01"


def publish_what_fits(by: Queue, count: int) -> int:
    """Publish so many in one statement and return how many were inserted: all or none."""
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


def test_delayed_and_running_messages_count(queue: Queue) -> None:
    queue.policy("t", max_depth=2)
    queue.publish()
    queue.publish(wait="1 hour")
    queue.claim()

    with pytest.raises(psycopg.Error) as caught:
        queue.publish()

    assert is_full(caught)


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
    queue.publish_many(5)
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
    queue.policy("t", max_depth=30_000)

    def copy(count: int) -> None:
        with queue.conn.cursor().copy("COPY messages.message (topic, payload) FROM STDIN") as copying:
            copying.write("t\t1\n" * count)

    copy(20_000)
    with pytest.raises(psycopg.Error) as caught:
        copy(20_000)

    assert is_full(caught)
    assert queue.depth() == 20_000


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
    queue: Queue, other: Queue, background: Background, eventually: Callable[..., Any]
) -> None:
    queue.policy("t", max_depth=1)
    with other.conn.transaction(force_rollback=True):
        other.publish()
        second = background.start(queue.publish)
        eventually(lambda: background.is_blocked(queue))

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


def test_concurrent_publishers_and_workers_never_exceed_the_limit_and_the_counter_is_right_at_the_end(
    queue: Queue, other: Queue, third: Queue, background: Background, eventually: Callable[..., Any]
) -> None:
    queue.policy("t", max_depth=20)
    worked = Event()
    count = "SELECT count(*) FROM messages.message"

    def publish(by: Queue) -> None:
        while not worked.is_set():
            publish_what_fits(by, 2)

    def work(by: Queue) -> int:
        most = 0
        try:
            eventually(lambda: by.value(count) > 10)
            for _ in range(100):
                most = max(most, by.value(count))
                by.settle("complete", by.claim(limit=7))
        finally:
            worked.set()
        return most

    publishing = [background.start(publish, by) for by in (queue, other)]
    most = background.start(work, third).result(60)
    for each in publishing:
        each.result(60)

    assert 10 < most <= 20
    assert queue.depth() == len(queue.ids())


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
