"""messages.recount_depth: counters that are wrong are put right, while publishers and workers go on."""

from __future__ import annotations

from tests.sql.queue import Background, Queue


def test_rows_that_were_deleted_by_hand_make_room_again(queue: Queue) -> None:
    queue.policy("t", max_depth=10)
    queue.publish_many(8)
    queue.conn.execute("DELETE FROM messages.message WHERE payload::int > 3")

    assert queue.call("recount_depth", 1.0) == 1
    assert queue.depth() == 3


def test_a_counter_that_is_right_is_not_touched(queue: Queue) -> None:
    queue.policy("t", max_depth=10)
    queue.publish_many(8)

    assert queue.call("recount_depth", 1.0) == 0


def test_what_a_transaction_published_that_had_not_seen_the_limit_is_counted_in_the_end(
    queue: Queue, other: Queue
) -> None:
    with other.conn.transaction():
        other.publish_many(5)
        queue.policy("t", max_depth=10)
        queue.publish()

    assert queue.depth() == 1
    queue.call("recount_depth", 1.0)
    assert queue.depth() == 6


def test_a_counter_that_nobody_asks_for_any_more_is_forgotten_and_the_mark_goes_with_it(own_queue: Queue) -> None:
    own_queue.policy("t", max_depth=10)
    own_queue.publish()
    own_queue.policy("t", max_depth=None)

    forgotten = own_queue.call("recount_depth", 1.0)
    own_queue.call("prune")

    assert forgotten == 1
    assert own_queue.rows("SELECT FROM messages.depth") == []
    assert own_queue.call("has_policies") is False


def test_messages_that_ended_and_were_not_added_up_are_no_mistake(queue: Queue) -> None:
    queue.policy("t", max_depth=10)
    queue.publish_many(8)
    queue.settle("complete", queue.claim(limit=3))

    assert queue.call("recount_depth", 1.0) == 0
    assert queue.depth() == 5


def test_ten_changes_that_wait_for_a_publisher_are_added_up(queue: Queue) -> None:
    queue.policy("t", max_depth=100)
    queue.publish_many(15)
    for claimed in queue.claim(limit=10):
        queue.settle("complete", [claimed])
    pending = "SELECT count(*) FROM messages.depth_change"
    before = queue.value(pending)

    queue.call("recount_depth", 0.0)

    assert (before, queue.value(pending)) == (10, 0)
    assert queue.rows("SELECT rows FROM messages.depth") == [(5,)]


def test_with_a_counter_its_changes_are_forgotten(queue: Queue) -> None:
    queue.policy("t", max_depth=10)
    queue.publish_many(2)
    queue.settle("complete", queue.claim(limit=1))
    queue.policy("t", max_depth=None)

    queue.call("recount_depth", 1.0)

    assert queue.rows("SELECT FROM messages.depth_change") == []


def test_what_ends_while_its_counter_is_forgotten_leaves_nothing_behind(queue: Queue, other: Queue) -> None:
    queue.policy("t", max_depth=10)
    queue.publish()
    claimed = queue.claim()
    with other.conn.transaction():
        other.settle("complete", claimed)
        queue.policy("t", max_depth=None)
        queue.call("recount_depth", 1.0)

    queue.call("recount_depth", 0.0)

    assert queue.rows("SELECT FROM messages.depth_change") == []
    assert queue.depth() is None


def test_a_counter_that_somebody_holds_is_left_for_the_next_time(queue: Queue, other: Queue) -> None:
    queue.policy("t", max_depth=10)
    queue.publish()
    queue.conn.execute("UPDATE messages.depth SET rows = 5")

    with other.conn.transaction():
        other.publish()
        queue.conn.execute("SET lock_timeout = '1 s'")
        assert queue.call("recount_depth", 1.0) == 0
    assert queue.call("recount_depth", 1.0) == 1

    assert queue.depth() == 2


def test_topics_with_more_messages_than_the_limit_are_not_counted(queue: Queue) -> None:
    queue.policy("t", max_depth=100)
    queue.publish_many(8)
    queue.conn.execute("UPDATE messages.depth SET rows = 50")

    assert queue.call("recount_depth", 1.0, 49) == 0


def test_among_publishers_and_workers_it_finds_nothing_wrong(
    queue: Queue, other: Queue, third: Queue, background: Background
) -> None:
    queue.policy("t", max_depth=1_000_000)
    queue.publish()

    def publish(by: Queue) -> None:
        for _ in range(200):
            by.publish_many(3)

    def work(by: Queue) -> None:
        for _ in range(100):
            by.settle("complete", by.claim(limit=7))

    going_on = [background.start(publish, queue), background.start(work, other)]
    corrected = sum(third.call("recount_depth", 1.0) for _ in range(100))
    for each in going_on:
        each.result(60)

    assert corrected == 0
    assert queue.depth() == len(queue.ids())


def test_the_tick_recounts(queue: Queue) -> None:
    assert "recount_depth" in [row.task for row in queue.rows("SELECT * FROM messages.tick()")]
