"""Messages with predecessors, as their publishers, workers and operators see them: what holds across all functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import errors

from tests.sql.queue import Background, Listener, Queue, Row


def after(queue: Queue, *before: int, topic: str = "t", **named: Any) -> int:
    """Publish a message that comes after these; return its id."""
    published: int = queue.send(topic=topic, after=list(before), **named).id
    return published


def finish(queue: Queue, *topics: str) -> None:
    """End the ready messages of these topics as a success."""
    assert queue.settle("complete", queue.claim(*topics)) == []


def kill(queue: Queue, *topics: str) -> None:
    """End the ready messages of these topics as failed."""
    assert queue.settle("fail", queue.claim(*topics), ["boom"]) == []


def ready(queue: Queue) -> list[int]:
    return [
        row.id
        for row in queue.rows(
            "SELECT id FROM messages.message WHERE claim_id IS NULL AND available_at <= clock_timestamp() ORDER BY id"
        )
    ]


def redrive(queue: Queue, message_id: int) -> int:
    row = queue.row("SELECT * FROM messages.redrive(%s)", [[message_id]])
    assert row.outcome == "redriven"
    published: int = row.message_id
    return published


def leftovers(queue: Queue) -> list[Row]:
    return queue.rows(
        "SELECT id FROM messages.blocked_message UNION ALL SELECT successor_id FROM messages.dependency "
        "UNION ALL SELECT id FROM messages.end_event"
    )


# Order


def test_a_message_is_claimed_once_all_its_predecessors_have_succeeded_and_not_before(queue: Queue) -> None:
    first, second = queue.publish_many(2)
    last = after(queue, first, second)

    (one,) = queue.claim(limit=1)
    queue.settle("complete", [one])
    after_one = ready(queue)
    finish(queue)

    assert after_one == [second]
    assert ready(queue) == [last]
    assert leftovers(queue) == []


def test_a_chain_is_published_in_one_transaction(queue: Queue) -> None:
    with queue.conn.transaction():
        first = queue.publish()
        second = after(queue, first)
        third = after(queue, second)

    for expected in (first, second, third):
        assert ready(queue) == [expected]
        finish(queue)


def test_the_end_that_releases_a_message_notifies_sleepers(queue: Queue, listen: Callable[..., Listener]) -> None:
    first = queue.publish()
    after(queue, first, topic="next")
    claimed = queue.claim()
    queue.arm()
    listener = listen("new_message")

    queue.settle("complete", claimed)

    assert listener.received() == ["next"]


def test_a_predecessor_that_has_succeeded_already_does_not_block(queue: Queue) -> None:
    first = queue.publish()
    finish(queue)

    last = after(queue, first)

    assert ready(queue) == [last]
    assert leftovers(queue) == []


def test_a_success_that_is_not_archived_releases_its_successors_too(queue: Queue) -> None:
    queue.policy(archive_success="none")
    last = after(queue, queue.publish())

    finish(queue)

    assert ready(queue) == [last]


def test_delay_and_ttl_of_the_publisher_count_from_the_release(queue: Queue) -> None:
    queue.stop_clock("2030-01-01 12:00+00")
    first = queue.publish(wait="0")
    last = after(queue, first, delay="1 hour", ttl="10 minutes")

    queue.later("5 hours")
    finish(queue)

    row = queue.message(last)
    assert (row.available_at.hour, row.expires_at.hour, row.expires_at.minute) == (18, 18, 10)


def test_a_future_available_at_is_kept_and_a_past_one_becomes_now(queue: Queue) -> None:
    queue.stop_clock("2030-01-01 12:00+00")
    first = queue.publish(wait="0")
    to_come = after(queue, first, available_at="2031-01-01 00:00+00")
    passed = after(queue, first, available_at="2030-01-01 13:00+00")

    queue.later("2 hours")
    finish(queue)

    assert queue.message(to_come).available_at.year == 2031
    assert queue.message(passed).available_at.hour == 14


def test_the_ttl_of_the_topic_counts_from_the_release_too(queue: Queue) -> None:
    queue.policy("next", ttl="1 hour")
    queue.stop_clock("2030-01-01 12:00+00")
    first = queue.publish(wait="0")
    last = after(queue, first, topic="next")

    queue.later("3 hours")
    expired = queue.call("expire_messages")
    finish(queue)

    assert expired == 0
    assert queue.message(last).expires_at.hour == 16


# A predecessor that ends badly


@pytest.mark.parametrize(
    "end",
    [
        lambda queue, _: kill(queue),
        lambda queue, _: queue.settle("reject", queue.claim(), ["no"]),
        lambda queue, _: (queue.claim(lock_duration="0 s"), queue.call("expire_locks")),
        lambda queue, first: queue.call("cancel", [first]),
        lambda queue, first: queue.call("skip", [first]),
    ],
    ids=["failed", "rejected", "lock_expired", "cancelled", "skipped"],
)
@pytest.mark.parametrize(("policy", "becomes"), [("hold", "blocked"), ("cancel", "cancelled"), ("run", "ready")])
def test_after_failed_decides_what_happens_to_the_successors(queue: Queue, end: Any, policy: str, becomes: str) -> None:
    first = queue.publish()
    last = after(queue, first, topic="next", after_failed=policy)

    end(queue, first)

    archived = queue.archived(last)
    state = archived.result if archived else "ready" if last in ready(queue) else "blocked"
    assert state == becomes
    assert (leftovers(queue) == []) is (policy != "hold")


@pytest.mark.parametrize(("policy", "becomes"), [("hold", "blocked"), ("cancel", "cancelled"), ("run", "ready")])
def test_a_predecessor_that_was_dead_before_counts_the_same(queue: Queue, policy: str, becomes: str) -> None:
    first = queue.publish()
    kill(queue)

    last = after(queue, first, topic="next", after_failed=policy)

    archived = queue.archived(last)
    assert (archived.result if archived else "ready" if last in ready(queue) else "blocked") == becomes


def test_a_cancelled_successor_cancels_its_own_successors_by_their_policies(queue: Queue) -> None:
    first = queue.publish()
    second = after(queue, first, topic="a", after_failed="cancel")
    third = after(queue, second, topic="b", after_failed="cancel")
    runs = after(queue, third, topic="c", after_failed="run")
    holds = after(queue, third, topic="d")

    kill(queue)

    assert [queue.archived(each).result for each in (second, third)] == ["cancelled", "cancelled"]
    assert f"message {second}, after which it comes, ended as cancelled" in queue.archived(third).error
    assert ready(queue) == [runs]
    assert queue.message(holds).available_at.year == 9000


def test_a_successor_waits_for_the_redrive_of_its_dead_predecessor(queue: Queue) -> None:
    first = queue.publish()
    last = after(queue, first, topic="next")
    kill(queue)

    again = redrive(queue, first)
    before = queue.row("SELECT id, state FROM messages.workflow(%s)", [last])
    finish(queue)

    assert tuple(before) == (again, "ready")
    assert ready(queue) == [last]
    assert leftovers(queue) == []


def test_a_copy_in_the_dead_letter_topic_passes_successors_on_too(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    first = queue.publish()
    last = after(queue, first, topic="next")
    kill(queue)
    copy = queue.value("SELECT message_id FROM messages.dead_letter WHERE origin_id = %s", [first])

    queue.rows("SELECT * FROM messages.requeue_dead_letters(%s)", [[copy]])
    finish(queue)

    assert ready(queue) == [last]


def test_a_message_after_a_redriven_one_waits_for_the_new_message(queue: Queue) -> None:
    first = queue.publish()
    kill(queue)
    again = redrive(queue, first)

    last = after(queue, first, again)

    assert [row.id for row in queue.rows("SELECT id FROM messages.workflow(%s)", [last])] == [again]


def test_a_message_can_be_unblocked_after_its_predecessor_left_the_archive(queue: Queue) -> None:
    first = queue.publish()
    last = after(queue, first, topic="next")
    kill(queue)
    queue.conn.execute("DELETE FROM messages.message_archive")

    queue.later("2 hours")
    queue.call("propagate_missed_ends")
    (why, *_) = queue.rows("SELECT code, reason FROM messages.explain(%s)", [last])
    released = queue.call("unblock", [last])

    assert why.code == "after_dead"
    assert "redrive" not in why.reason
    assert (released, queue.message(last).available_at.year < 9000) == ([last], True)


# Operations on a blocked message


def test_a_cancel_ends_it_and_leaves_nothing(queue: Queue) -> None:
    first = queue.publish()
    last = after(queue, first)

    assert queue.call("cancel", [last]) == [last]
    assert queue.archived(last).result == "cancelled"
    assert leftovers(queue) == []
    finish(queue)
    assert queue.ids() == []


def test_a_skip_ends_it_and_its_redrive_waits_for_nothing(queue: Queue) -> None:
    last = after(queue, queue.publish("before"), topic="next")

    queue.call("skip", [last])
    again = redrive(queue, last)

    assert queue.archived(last).result == "failed"
    assert again in ready(queue)
    assert leftovers(queue) == []


def test_retry_now_does_not_change_it(queue: Queue) -> None:
    last = after(queue, queue.publish())

    assert queue.call("retry_now", [last]) == []
    assert queue.message(last).available_at.year == 9000


def test_an_edit_changes_its_payload(queue: Queue) -> None:
    last = after(queue, queue.publish())

    assert queue.value("SELECT messages.edit(%s, '7')", [last]) == "edited"
    finish(queue)

    assert [c.payload for c in queue.claim()] == ["7"]


def test_a_replay_of_its_predecessor_releases_nothing(queue: Queue) -> None:
    done, waits = queue.publish("done"), queue.publish("waits")
    last = after(queue, done, waits)
    finish(queue, "done")

    queue.rows("SELECT * FROM messages.replay('done', now() - interval '1 hour', clock_timestamp())")
    finish(queue, "done")

    assert queue.message(last).available_at.year == 9000


def test_the_retention_of_the_archive_deletes_nothing_that_is_blocked(queue: Queue) -> None:
    last = after(queue, queue.publish())
    queue.policy("*", retention="1 day")

    queue.later("10 days")
    queue.call("purge")
    queue.call("maintain_partitions")

    assert queue.message(last) is not None
    assert queue.row("SELECT FROM messages.blocked_message WHERE id = %s", [last]) is not None


# Keys and limits


def test_its_key_is_taken_from_the_start(queue: Queue) -> None:
    last = after(queue, queue.publish(), key="k")

    with pytest.raises(errors.UniqueViolation):
        queue.send(key="k")
    assert tuple(queue.send(key="k", on_conflict="ignore")) == (last, "ignored")


def test_its_content_can_be_replaced_and_the_ttl_counts_from_the_release(queue: Queue) -> None:
    queue.stop_clock("2030-01-01 12:00+00")
    first = queue.publish("first", wait="0")
    last = after(queue, first, key="k", ttl="1 minute")

    replaced = queue.send(2, key="k", on_conflict="replace", ttl="2 hours")
    queue.later("1 day")
    expired = queue.call("expire_messages")
    finish(queue, "first")

    row = queue.message(last)
    assert (tuple(replaced), expired, row.payload) == ((last, "replaced"), 0, 2)
    assert round((row.expires_at - row.available_at).total_seconds()) == 7200


@pytest.mark.parametrize(
    "back",
    [
        lambda queue, held: queue.settle("release", held),
        lambda queue, held: queue.settle("defer", held, None, None, None),
        lambda queue, held: queue.settle("retry", held, ["boom"], ["0 s"]),
    ],
    ids=["release", "defer", "retry"],
)
def test_a_message_with_the_key_of_its_predecessor_does_not_supersede_it(queue: Queue, back: Any) -> None:
    queue.policy(key_on_retry="supersede", max_attempts=3)
    first = queue.publish(key="k")
    held = queue.claim()
    last = after(queue, first, key="k")

    assert back(queue, held) == []

    assert ready(queue) == [first]
    finish(queue)
    assert ready(queue) == [last]


@pytest.mark.parametrize("mode", ["replace", "append"])
def test_it_cannot_replace_another_message(queue: Queue, mode: str) -> None:
    first = queue.publish()

    with pytest.raises(errors.InvalidParameterValue, match="keeps its place"):
        after(queue, first, key="k", on_conflict=mode)


def test_it_cannot_be_fanned_out(queue: Queue) -> None:
    first = queue.publish("first")
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('t', 'a')")

    with pytest.raises(errors.InvalidParameterValue, match="subscribers"):
        after(queue, first)


def test_it_counts_towards_the_depth_of_its_topic_and_a_dropped_one_is_not_stored(queue: Queue) -> None:
    queue.policy(max_depth=1, on_full="drop")
    first = queue.publish("first")
    after(queue, first)

    dropped = queue.send(after=[first])

    assert tuple(dropped) == (None, "dropped")
    assert queue.value("SELECT count(*) FROM messages.blocked_message") == 1


def test_it_counts_neither_as_ready_nor_as_unhandled_nor_as_old(queue: Queue) -> None:
    after(queue, queue.publish("first"), topic="next")

    assert [row[0] for row in queue.rows("SELECT * FROM messages.unhandled_topics()")] == ["first"]
    assert queue.call("oldest_ready", "next") is None
    assert queue.call("count_ready", ["next"]) == 0


# Concurrency


def test_of_two_concurrent_ends_the_second_releases(
    queue: Queue, other: Queue, background: Background, eventually: Callable[..., Any]
) -> None:
    def released_by_the_second() -> bool:
        first, second = queue.publish("first"), queue.publish("second")
        last = after(queue, first, second)
        one, two = queue.claim("first"), other.claim("second")
        # Deferred triggers run here at once, so that the first holds its locks for as long as its transaction is open.
        with queue.conn.transaction():
            queue.conn.execute("SET CONSTRAINTS ALL IMMEDIATE")
            queue.settle("complete", one)
            ending = background.start(other.settle, "complete", two)
            eventually(lambda: background.is_blocked(other) or ending.done())
        assert ending.result(timeout=60) == []
        at_once = ready(queue)
        queue.call("propagate_missed_ends")
        assert ready(queue) == [last]
        finish(queue)
        return at_once == [last]

    # It waits only for a short time: on a busy machine that may be over, and then the tick releases.
    assert any(released_by_the_second() for _ in range(10))


def test_concurrent_ends_in_any_order_release_every_message_and_do_not_block_each_other(
    queue: Queue, other: Queue, background: Background
) -> None:
    """Each transaction ends one message of every pair, in opposite orders.

    Locks in the order of the ends would deadlock.
    """
    for _ in range(10):
        ones, twos = queue.publish_many(5, "one"), queue.publish_many(5, "two")
        lasts = [after(queue, *pair, topic="last") for pair in zip(ones, twos, strict=True)]
        mine, theirs = queue.claim("one"), other.claim("two")

        def end(who: Queue, claimed: list[Row]) -> None:
            with who.conn.transaction():
                for each in claimed:
                    who.settle("complete", [each])

        ending = background.start(end, other, theirs[::-1])
        end(queue, mine)
        ending.result(timeout=60)
        queue.call("propagate_missed_ends")
        assert sorted(c.id for c in queue.claim("last")) == lasts


def test_a_publisher_never_makes_an_end_wait(queue: Queue, other: Queue) -> None:
    first = queue.publish()
    claimed = queue.claim()

    with other.conn.transaction():
        last = after(other, first)
        queue.conn.execute("SET lock_timeout = '1s'")
        assert queue.settle("complete", claimed) == []
    queue.conn.execute("RESET lock_timeout")
    before_the_tick = ready(queue)
    queue.call("propagate_missed_ends")

    assert (before_the_tick, ready(queue)) == ([], [last])


def test_an_end_that_is_not_committed_when_the_tick_runs_is_found_by_a_later_tick(queue: Queue, other: Queue) -> None:
    first = queue.publish()
    claimed = queue.claim()

    queue.conn.execute("BEGIN")
    with other.conn.transaction():
        last = after(other, first)
        queue.settle("complete", claimed)
    other.call("propagate_missed_ends")
    other.call("propagate_missed_ends")
    queue.conn.execute("COMMIT")
    other.call("propagate_missed_ends")

    assert ready(queue) == [last]


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_an_end_with_a_snapshot_older_than_the_dependency_is_found_by_the_tick(
    queue: Queue, other: Queue, isolation: str
) -> None:
    first = queue.publish()
    claimed = queue.claim()

    queue.conn.execute(f"BEGIN ISOLATION LEVEL {isolation}")
    queue.rows("SELECT FROM messages.message")
    last = after(other, first)
    queue.settle("complete", claimed)
    queue.conn.execute("COMMIT")
    queue.call("propagate_missed_ends")

    assert ready(queue) == [last]


def test_an_end_that_is_rolled_back_releases_nothing(queue: Queue) -> None:
    first = queue.publish()
    last = after(queue, first)

    queue.conn.execute("BEGIN")
    queue.settle("complete", queue.claim())
    queue.conn.execute("ROLLBACK")

    assert queue.message(last).available_at.year == 9000
    finish(queue)
    assert ready(queue) == [last]


def test_an_end_that_is_rolled_back_to_a_savepoint_releases_nothing(queue: Queue) -> None:
    first, second = queue.publish("first"), queue.publish("second")
    one, two = after(queue, first), after(queue, second)

    with queue.conn.transaction():
        queue.conn.execute("SAVEPOINT s")
        finish(queue, "first")
        queue.conn.execute("ROLLBACK TO s")
        finish(queue, "second")

    assert queue.message(one).available_at.year == 9000
    assert two in ready(queue)


def test_a_message_that_is_being_edited_is_released_by_the_next_tick(queue: Queue, other: Queue) -> None:
    first = queue.publish()
    last = after(queue, first)
    claimed = queue.claim()

    with other.conn.transaction():
        other.value("SELECT messages.edit(%s, '2')", [last])
        queue.conn.execute("SET lock_timeout = '1s'")
        queue.settle("complete", claimed)
    queue.conn.execute("RESET lock_timeout")
    queue.call("propagate_missed_ends")

    assert ready(queue) == [last]
