"""messages.estimate_waiting: the numbers of waiting messages, from a sample of the pages."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


def test_a_small_table_is_read_as_a_whole(queue: Queue) -> None:
    queue.publish_many(30)
    queue.publish_many(20, wait="1 hour", channel="c")
    queue.publish_many(7, "u")
    queue.claim("u", limit=3)

    found = {row.topic: row for row in queue.rows("SELECT * FROM messages.estimate_waiting(1000000)")}

    assert (found["t"].ready, found["t"].delayed) == (30, 20)
    assert found["t"].ready_runs == 1000
    assert (found["u"].ready, found["u"].delayed) == (4, 0)


def test_an_empty_queue_has_no_topic(queue: Queue) -> None:
    assert queue.rows("SELECT * FROM messages.estimate_waiting()") == []


@pytest.mark.parametrize("together", [True, False])
def test_an_estimate_from_a_part_of_the_pages_is_near_the_rows(own_queue: Queue, together: bool) -> None:
    for n in range(4 if together else 40):
        own_queue.publish_many(5_000 if together else 500, f"topic-{n % 4}")
    pages = int(own_queue.value("SELECT pg_relation_size('messages.message') / current_setting('block_size')::int"))

    found = {row.topic: row for row in own_queue.rows("SELECT * FROM messages.estimate_waiting(%s)", [pages // 4])}

    # What was published at once lies on few of the runs: errors of a fifth were seen.
    assert {topic: row.ready for topic, row in found.items()} == {
        f"topic-{n}": pytest.approx(5_000, rel=0.4) for n in range(4)
    }
    again = own_queue.rows("SELECT * FROM messages.estimate_waiting(%s)", [pages // 4])
    assert {row.topic: row for row in again} == found, "the same messages, another estimate"


def test_a_topic_on_few_runs_is_not_sure(own_queue: Queue) -> None:
    for _ in range(2):
        own_queue.publish_many(5_000)
    own_queue.publish_many(300, "together")
    for _ in range(2):
        own_queue.publish_many(5_000)
    pages = int(own_queue.value("SELECT pg_relation_size('messages.message') / current_setting('block_size')::int"))

    found = own_queue.rows("SELECT * FROM messages.estimate_waiting(%s)", [pages - 5])

    runs = {row.topic: row.ready_runs for row in found}
    assert runs["t"] >= 20
    assert runs["together"] <= 3


@pytest.mark.newest
def test_it_reads_no_more_pages_than_it_may(own_queue: Queue) -> None:
    own_queue.publish_many(20_000)
    own_queue.rows("SELECT * FROM messages.estimate_waiting(20)")  # which reads the catalog, to plan

    assert own_queue.buffers("SELECT * FROM messages.estimate_waiting(20)") < 100
