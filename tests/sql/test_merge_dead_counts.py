"""messages.dead_count and merge_dead_counts: how many ever died, by topic and result."""

from __future__ import annotations

from tests.sql.queue import Queue

SUMS = "SELECT topic, result, sum(count)::int AS died FROM messages.dead_count GROUP BY topic, result ORDER BY 1, 2"


def die(queue: Queue, count: int, topic: str = "t", how: str = "fail") -> None:
    queue.publish_many(count, topic)
    queue.settle(how, queue.claim(topic, limit=count), ["boom"] * count)


def sums(queue: Queue) -> dict[tuple[str, str], int]:
    return {(row.topic, row.result): row.died for row in queue.rows(SUMS)}


def test_every_way_to_die_counts_and_nothing_else(queue: Queue) -> None:
    die(queue, 3)
    die(queue, 2, how="reject")
    die(queue, 1, "u")
    queue.publish_many(4)
    queue.settle("complete", queue.claim(limit=4))
    queue.call("cancel", queue.publish_many(2))

    assert sums(queue) == {("t", "failed"): 3, ("t", "rejected"): 2, ("u", "failed"): 1}


def test_it_never_falls_whatever_is_forgotten(queue: Queue) -> None:
    die(queue, 5)
    queue.later("100 days")
    queue.conn.execute("DELETE FROM messages.message_archive")
    queue.rows("SELECT * FROM messages.tick()")
    assert queue.rows("SELECT FROM messages.alert") == []

    die(queue, 1)

    assert sums(queue) == {("t", "failed"): 6}


def test_folding_leaves_one_row_of_each_and_the_sum_as_it_was(queue: Queue) -> None:
    for _ in range(3):
        die(queue, 2)
        die(queue, 1, how="reject")
    before = sums(queue)

    assert queue.call("merge_dead_counts") == 4

    assert sums(queue) == before == {("t", "failed"): 6, ("t", "rejected"): 3}
    assert queue.value("SELECT count(*) FROM messages.dead_count") == 2
    assert queue.call("merge_dead_counts") == 0, "what is folded is left alone"


def test_folding_takes_no_more_than_its_limit(queue: Queue) -> None:
    for _ in range(6):
        die(queue, 1)

    assert queue.call("merge_dead_counts", 3) == 2

    assert sums(queue) == {("t", "failed"): 6}


def test_deaths_wait_for_no_fold_and_no_fold_for_deaths_or_another_fold(queue: Queue, other: Queue) -> None:
    for _ in range(3):
        die(queue, 1)
    queue.conn.execute("SET lock_timeout = '5s'")
    with other.conn.transaction():
        assert other.call("merge_dead_counts") == 2

        die(queue, 1)
        assert queue.call("merge_dead_counts") == 0
        assert sums(queue) == {("t", "failed"): 4}

    assert sums(queue) == {("t", "failed"): 4}


def test_a_death_that_is_rolled_back_does_not_count(queue: Queue, other: Queue) -> None:
    with other.conn.transaction(force_rollback=True):
        die(other, 1)

    assert sums(queue) == {}


def test_the_tick_folds(queue: Queue) -> None:
    for _ in range(3):
        die(queue, 1)

    queue.rows("SELECT * FROM messages.tick()")

    assert queue.value("SELECT count(*) FROM messages.dead_count") == 1
