"""messages.dead_count and merge_dead_counts: the total number of dead messages, by topic and result."""

from __future__ import annotations

from tests.sql.queue import Queue

SUMS = "SELECT topic, result, sum(count)::int AS died FROM messages.dead_count GROUP BY topic, result ORDER BY 1, 2"


def die(queue: Queue, count: int, topic: str = "t", how: str = "fail") -> None:
    queue.publish_many(count, topic)
    queue.settle(how, queue.claim(topic, limit=count), ["boom"] * count)


def sums(queue: Queue) -> dict[tuple[str, str], int]:
    return {(row.topic, row.result): row.died for row in queue.rows(SUMS)}


def test_every_dead_result_counts_and_no_other(queue: Queue) -> None:
    die(queue, 3)
    die(queue, 2, how="reject")
    die(queue, 1, "u")
    queue.publish_many(4)
    queue.settle("complete", queue.claim(limit=4))
    queue.call("cancel", queue.publish_many(2))

    assert sums(queue) == {("t", "failed"): 3, ("t", "rejected"): 2, ("u", "failed"): 1}


def test_the_total_never_falls_whatever_is_deleted(queue: Queue) -> None:
    die(queue, 5)
    queue.later("100 days")
    queue.conn.execute("DELETE FROM messages.message_archive")
    queue.rows("SELECT * FROM messages.tick()")
    assert queue.rows("SELECT FROM messages.alert") == []

    die(queue, 1)

    assert sums(queue) == {("t", "failed"): 6}


def test_a_merge_leaves_one_row_of_each_and_the_same_sum(queue: Queue) -> None:
    for _ in range(3):
        die(queue, 2)
        die(queue, 1, how="reject")
    before = sums(queue)

    assert queue.call("merge_dead_counts") == 4

    assert sums(queue) == before == {("t", "failed"): 6, ("t", "rejected"): 3}
    assert queue.value("SELECT count(*) FROM messages.dead_count") == 2
    assert queue.call("merge_dead_counts") == 0, "a second merge changes nothing"


def test_what_died_more_than_a_day_ago_is_merged_into_one_row_whatever_the_time(queue: Queue) -> None:
    die(queue, 2)
    queue.conn.execute("UPDATE messages.dead_count SET died_at = died_at - interval '20 hours'")
    die(queue, 3)
    for hours in ("5 hours", "20 hours"):
        queue.call("merge_dead_counts")
        assert len(queue.rows("SELECT FROM messages.dead_count")) == 2
        queue.later(hours)

    queue.call("merge_dead_counts")

    row = queue.row("SELECT c.count, c.died_at FROM messages.dead_count AS c")
    assert (row.count, row.died_at) == (5, None)
    assert queue.call("merge_dead_counts") == 0, "what is merged is not written again"


def test_a_merge_is_bounded_by_its_limit(queue: Queue) -> None:
    for _ in range(6):
        die(queue, 1)

    assert queue.call("merge_dead_counts", 3) == 2

    assert sums(queue) == {("t", "failed"): 6}


def test_dead_messages_and_merges_never_wait_for_each_other(queue: Queue, other: Queue) -> None:
    for _ in range(3):
        die(queue, 1)
    queue.conn.execute("SET lock_timeout = '5s'")
    with other.conn.transaction():
        assert other.call("merge_dead_counts") == 2

        die(queue, 1)
        assert queue.call("merge_dead_counts") == 0
        assert sums(queue) == {("t", "failed"): 4}

    assert sums(queue) == {("t", "failed"): 4}


def test_a_dead_message_that_is_rolled_back_does_not_count(queue: Queue, other: Queue) -> None:
    with other.conn.transaction(force_rollback=True):
        die(other, 1)

    assert sums(queue) == {}


def test_the_tick_calls_it(queue: Queue) -> None:
    for _ in range(3):
        die(queue, 1)

    queue.rows("SELECT * FROM messages.tick()")

    assert queue.value("SELECT count(*) FROM messages.dead_count") == 1
