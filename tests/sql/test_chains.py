"""Messages that come after others, as their publishers, workers and operators see them: what holds whatever functions it takes."""

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
    """End what is ready there as a success."""
    assert queue.settle("complete", queue.claim(*topics)) == []


def kill(queue: Queue, *topics: str) -> None:
    """End what is ready there as failed."""
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
        "SELECT id FROM messages.blocked_message UNION ALL SELECT successor_id FROM messages.dependency UNION ALL SELECT id FROM messages.end_event"
    )


# In order


def test_it_is_claimed_when_all_before_it_have_succeeded_and_not_before(queue: Queue) -> None:
    first, second = queue.publish_many(2)
    last = after(queue, first, second)

    (one,) = queue.claim(limit=1)
    queue.settle("complete", [one])
    after_one = ready(queue)
    finish(queue)

    assert after_one == [second]
    assert ready(queue) == [last]
    assert leftovers(queue) == []


def test_a_diamond_runs_from_its_top_to_its_bottom(queue: Queue) -> None:
    top = queue.publish("top")
    left, right = after(queue, top, topic="left"), after(queue, top, topic="right")
    bottom = after(queue, left, right, topic="bottom")

    seen = []
    while claimed := queue.claim("top", "left", "right", "bottom"):
        seen.append([c.id for c in claimed])
        queue.settle("complete", claimed)

    assert seen == [[top], [left, right], [bottom]]


def test_a_chain_is_published_in_one_transaction(queue: Queue) -> None:
    with queue.conn.transaction():
        first = queue.publish()
        second = after(queue, first)
        third = after(queue, second)

    for expected in (first, second, third):
        assert ready(queue) == [expected]
        finish(queue)


def test_sleepers_are_rung_by_the_end_that_releases(queue: Queue, listen: Callable[..., Listener]) -> None:
    first = queue.publish()
    after(queue, first, topic="next")
    claimed = queue.claim()
    queue.arm()
    listener = listen("new_message")

    queue.settle("complete", claimed)

    assert listener.received() == ["next"]


def test_a_predecessor_that_succeeded_already_is_no_reason_to_wait(queue: Queue) -> None:
    first = queue.publish()
    finish(queue)

    last = after(queue, first)

    assert ready(queue) == [last]
    assert leftovers(queue) == []


def test_a_success_of_which_nothing_is_kept_releases_all_the_same(queue: Queue) -> None:
    queue.policy(archive_success="none")
    last = after(queue, queue.publish())

    finish(queue)

    assert ready(queue) == [last]


def test_the_times_that_the_publisher_wanted_count_from_the_release(queue: Queue) -> None:
    queue.stop_clock("2030-01-01 12:00+00")
    first = queue.publish(wait="0")
    last = after(queue, first, delay="1 hour", ttl="10 minutes")

    queue.later("5 hours")
    finish(queue)

    row = queue.message(last)
    assert (row.available_at.hour, row.expires_at.hour, row.expires_at.minute) == (18, 18, 10)


def test_a_time_to_come_is_kept_and_one_that_has_passed_is_now(queue: Queue) -> None:
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


# When one before it ends badly


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
def test_what_happens_then_is_what_its_publisher_said(queue: Queue, end: Any, policy: str, becomes: str) -> None:
    first = queue.publish()
    last = after(queue, first, topic="next", after_failed=policy)

    end(queue, first)

    archived = queue.archived(last)
    state = archived.result if archived else "ready" if last in ready(queue) else "blocked"
    assert state == becomes
    assert (leftovers(queue) == []) is (policy != "hold")


@pytest.mark.parametrize(("policy", "becomes"), [("hold", "blocked"), ("cancel", "cancelled"), ("run", "ready")])
def test_one_that_was_dead_before_counts_the_same(queue: Queue, policy: str, becomes: str) -> None:
    first = queue.publish()
    kill(queue)

    last = after(queue, first, topic="next", after_failed=policy)

    archived = queue.archived(last)
    assert (archived.result if archived else "ready" if last in ready(queue) else "blocked") == becomes


def test_a_cancelled_successor_cancels_those_after_it_by_their_own_policies(queue: Queue) -> None:
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


def test_a_redrive_of_the_dead_one_is_what_it_waits_for_then(queue: Queue) -> None:
    first = queue.publish()
    last = after(queue, first, topic="next")
    kill(queue)

    again = redrive(queue, first)
    before = queue.row("SELECT id, state FROM messages.workflow(%s)", [last])
    finish(queue)

    assert tuple(before) == (again, "ready")
    assert ready(queue) == [last]
    assert leftovers(queue) == []


def test_the_copy_in_the_dead_letter_topic_hands_it_on_too(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    first = queue.publish()
    last = after(queue, first, topic="next")
    kill(queue)
    copy = queue.value("SELECT message_id FROM messages.dead_letter WHERE origin_id = %s", [first])

    queue.rows("SELECT * FROM messages.requeue_dead_letters(%s)", [[copy]])
    finish(queue)

    assert ready(queue) == [last]


def test_one_that_comes_after_a_message_that_was_put_back_waits_for_what_it_became(queue: Queue) -> None:
    first = queue.publish()
    kill(queue)
    again = redrive(queue, first)

    last = after(queue, first, again)

    assert [row.id for row in queue.rows("SELECT id FROM messages.workflow(%s)", [last])] == [again]


def test_its_row_leaves_the_archive_and_it_can_still_be_let_run(queue: Queue) -> None:
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


# What operators do with one that waits


def test_cancel_ends_it_and_leaves_nothing(queue: Queue) -> None:
    first = queue.publish()
    last = after(queue, first)

    assert queue.call("cancel", [last]) == [last]
    assert queue.archived(last).result == "cancelled"
    assert leftovers(queue) == []
    finish(queue)
    assert queue.ids() == []


def test_skip_ends_it_and_a_redrive_of_it_waits_for_nothing(queue: Queue) -> None:
    last = after(queue, queue.publish("before"), topic="next")

    queue.call("skip", [last])
    again = redrive(queue, last)

    assert queue.archived(last).result == "failed"
    assert again in ready(queue)
    assert leftovers(queue) == []


def test_retry_now_leaves_it_where_it_is(queue: Queue) -> None:
    last = after(queue, queue.publish())

    assert queue.call("retry_now", [last]) == []
    assert queue.message(last).available_at.year == 9000


def test_edit_changes_what_it_will_carry(queue: Queue) -> None:
    last = after(queue, queue.publish())

    assert queue.value("SELECT messages.edit(%s, '7')", [last]) == "edited"
    finish(queue)

    assert [c.payload for c in queue.claim()] == ["7"]


def test_a_replay_of_what_was_before_it_releases_nothing(queue: Queue) -> None:
    done, waits = queue.publish("done"), queue.publish("waits")
    last = after(queue, done, waits)
    finish(queue, "done")

    queue.rows("SELECT * FROM messages.replay('done', now() - interval '1 hour', clock_timestamp())")
    finish(queue, "done")

    assert queue.message(last).available_at.year == 9000


def test_the_retention_of_the_archive_takes_nothing_that_waits(queue: Queue) -> None:
    last = after(queue, queue.publish())
    queue.policy("*", retention="1 day")

    queue.later("10 days")
    queue.call("purge")
    queue.call("maintain_partitions")

    assert queue.message(last) is not None
    assert queue.row("SELECT FROM messages.blocked_message WHERE id = %s", [last]) is not None


# Keys and limits


def test_its_key_stands_from_the_start(queue: Queue) -> None:
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
def test_one_that_has_the_key_of_what_it_comes_after_does_not_supersede_it(queue: Queue, back: Any) -> None:
    queue.policy(key_on_retry="supersede", max_attempts=3)
    first = queue.publish(key="k")
    held = queue.claim()
    last = after(queue, first, key="k")

    assert back(queue, held) == []

    assert ready(queue) == [first]
    finish(queue)
    assert ready(queue) == [last]


@pytest.mark.parametrize("mode", ["replace", "append"])
def test_it_cannot_take_the_place_of_another(queue: Queue, mode: str) -> None:
    first = queue.publish()

    with pytest.raises(errors.InvalidParameterValue, match="keeps its place"):
        after(queue, first, key="k", on_conflict=mode)


def test_it_cannot_be_fanned_out(queue: Queue) -> None:
    first = queue.publish("first")
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('t', 'a')")

    with pytest.raises(errors.InvalidParameterValue, match="subscribers"):
        after(queue, first)


def test_it_counts_as_one_of_its_topic_and_one_that_is_dropped_is_not_parked(queue: Queue) -> None:
    queue.policy(max_depth=1, on_full="drop")
    first = queue.publish("first")
    after(queue, first)

    dropped = queue.send(after=[first])

    assert tuple(dropped) == (None, "dropped")
    assert queue.value("SELECT count(*) FROM messages.blocked_message") == 1


def test_it_is_neither_ready_nor_unhandled_nor_old(queue: Queue) -> None:
    after(queue, queue.publish("first"), topic="next")

    assert [row[0] for row in queue.rows("SELECT * FROM messages.unhandled_topics()")] == ["first"]
    assert queue.call("oldest_ready", "next") is None
    assert queue.call("count_ready", ["next"]) == 0


# At the same moment


def test_of_two_ends_at_the_same_moment_the_second_releases(
    queue: Queue, other: Queue, background: Background, eventually: Callable[..., Any]
) -> None:
    def released_by_the_second() -> bool:
        first, second = queue.publish("first"), queue.publish("second")
        last = after(queue, first, second)
        one, two = queue.claim("first"), other.claim("second")
        # Deferred triggers run here at once, so that the first holds what it took for as long as its transaction is open.
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

    # It waits for a moment only: on a busy machine that may be over, and then it is the tick.
    assert any(released_by_the_second() for _ in range(10))


def test_many_ends_in_any_order_of_their_messages_neither_lose_one_nor_stop_each_other(
    queue: Queue, other: Queue, background: Background
) -> None:
    """Each transaction ends one message of every pair, in opposite orders: locks taken as they come would make a circle."""
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


def test_who_publishes_never_keeps_an_end_waiting(queue: Queue, other: Queue) -> None:
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


def test_an_end_that_is_not_committed_when_the_tick_looks_first_is_found_by_a_later_one(
    queue: Queue, other: Queue
) -> None:
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
def test_an_end_in_a_snapshot_older_than_the_edge_is_found_by_the_tick(
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


def test_an_end_that_is_undone_releases_nothing(queue: Queue) -> None:
    first = queue.publish()
    last = after(queue, first)

    queue.conn.execute("BEGIN")
    queue.settle("complete", queue.claim())
    queue.conn.execute("ROLLBACK")

    assert queue.message(last).available_at.year == 9000
    finish(queue)
    assert ready(queue) == [last]


def test_an_end_in_a_savepoint_that_is_undone_is_no_end(queue: Queue) -> None:
    first, second = queue.publish("first"), queue.publish("second")
    one, two = after(queue, first), after(queue, second)

    with queue.conn.transaction():
        queue.conn.execute("SAVEPOINT s")
        finish(queue, "first")
        queue.conn.execute("ROLLBACK TO s")
        finish(queue, "second")

    assert queue.message(one).available_at.year == 9000
    assert two in ready(queue)


def test_one_that_somebody_edits_is_released_by_the_next_tick(queue: Queue, other: Queue) -> None:
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
