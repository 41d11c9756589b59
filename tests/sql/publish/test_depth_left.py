"""messages.depth_left, through on_full = drop.

Rows that do not fit are dropped one by one, and the others are published.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.sql.queue import Background, Queue


@pytest.fixture(autouse=True)
def limit(queue: Queue) -> None:
    queue.policy("t", max_depth=3, on_full="drop")


def test_an_insert_into_a_full_topic_inserts_nothing_and_returns_no_row(queue: Queue) -> None:
    queue.publish_many(3)

    assert queue.publish_many(1) == []
    assert queue.depth() == len(queue.ids()) == 3


def test_publish_returns_that_the_message_was_dropped(queue: Queue) -> None:
    queue.publish_many(3)

    assert tuple(queue.send()) == (None, "dropped")


@pytest.mark.parametrize("mode", ["replace", "ignore", "append"])
def test_a_new_key_is_dropped_and_a_waiting_one_is_not(queue: Queue, mode: str) -> None:
    queue.publish_many(2)
    first = queue.send(1, key="k")

    assert tuple(queue.send(2, key="new", on_conflict=mode)) == (None, "dropped")
    assert queue.send(2, key="k", on_conflict=mode).id == first.id


def test_of_a_bulk_insert_the_first_rows_fit_and_the_rest_is_dropped(queue: Queue) -> None:
    queue.publish()

    published = queue.publish_many(10)

    assert [queue.message(each).payload for each in published] == [1, 2]
    assert queue.depth() == 3


def test_a_copy_counts_only_rows_that_were_not_dropped(queue: Queue) -> None:
    cursor = queue.conn.cursor()
    with cursor.copy("COPY messages.message (topic, payload) FROM STDIN") as copying:
        copying.write("t\t1\n" * 5 + "other\t1\n" * 2)

    assert cursor.rowcount == 5
    assert queue.depth() == 3


def test_the_next_statement_of_the_transaction_reads_the_room_again(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        assert len(queue.publish_many(2)) == 2
        with queue.conn.transaction(force_rollback=True):
            assert len(queue.publish_many(2)) == 1
        assert len(queue.publish_many(2)) == 1

    assert queue.depth() == len(other.ids()) == 3


def test_an_end_within_the_transaction_makes_room_for_its_next_statement(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.publish_many(3)
        queue.settle("complete", queue.claim(limit=2))
        assert len(queue.publish_many(3)) == 2


def test_a_failed_statement_leaves_the_room_unchanged(queue: Queue) -> None:
    with queue.conn.transaction():
        with pytest.raises(psycopg.Error), queue.conn.transaction():
            queue.publish_many(2, priority=sql.SQL("n * 9"))
        assert len(queue.publish_many(5)) == 3


def test_a_publisher_cannot_extend_its_room(queue: Queue) -> None:
    queue.publish_many(3)

    queue.conn.execute("""SET messages.depth_left = '{"t": 100}'""")
    with pytest.raises(psycopg.Error) as caught:
        queue.publish()

    assert caught.value.sqlstate == "PGR01"


def test_many_concurrent_publishers_fill_a_topic_exactly(
    queue: Queue, other: Queue, third: Queue, background: Background
) -> None:
    queue.policy("t", max_depth=100)

    def publish(by: Queue) -> int:
        return sum(len(by.publish_many(1 + n % 3)) for n in range(80))

    published: list[Any] = [background.start(publish, by) for by in (queue, other, third)]

    assert sum(each.result(60) for each in published) == 100
    assert len(queue.ids()) == queue.depth() == 100
