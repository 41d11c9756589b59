"""The trigger propagate_ends_at_commit: a transaction propagates its ends when it commits, once, and a bounded number. The rest: test_chains.py."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


def test_before_the_commit_it_holds_no_lock_that_another_end_needs(queue: Queue, other: Queue) -> None:
    first, second = queue.publish("first"), queue.publish("second")
    last = queue.send(after=[first, second]).id
    other.conn.execute("SET lock_timeout = '1s'")

    with queue.conn.transaction():
        queue.settle("complete", queue.claim("first"))
        assert other.settle("complete", other.claim("second")) == []
        before = queue.message(last).available_at.year

    assert before == 9000
    assert [c.id for c in queue.claim()] == [last]


def test_one_end_releases_a_thousand_successors_and_the_tick_continues(queue: Queue) -> None:
    first = queue.publish()
    queue.conn.execute(
        "SELECT count(*) FROM generate_series(1, 1100), LATERAL messages.publish('next', to_jsonb(generate_series), p_after => ARRAY[%s::bigint])",
        [first],
    )

    queue.settle("complete", queue.claim())
    at_once = queue.call("count_ready", ["next"])
    queue.call("propagate_missed_ends")

    assert 1000 <= at_once <= 1001
    assert queue.call("count_ready", ["next"]) == 1100


def test_a_long_chain_of_cancellations_ends_within_a_few_ticks(queue: Queue) -> None:
    last = queue.publish()
    chain = [last := queue.send(after=[last], after_failed="cancel").id for _ in range(30)]

    queue.conn.execute("SELECT set_config('messages.propagated', '800', false)")
    queue.settle("fail", queue.claim(), ["boom"])
    at_once = queue.value("SELECT count(*) FROM messages.message_archive WHERE result = 'cancelled'")
    queue.conn.execute("SELECT set_config('messages.propagated', '', false)")
    while queue.value("SELECT count(*) FROM messages.end_event"):
        queue.call("propagate_missed_ends")

    # Each round counts as ten.
    assert 20 <= at_once <= 21
    assert {queue.archived(each).result for each in chain} == {"cancelled"}


def test_a_session_that_holds_a_successor_delays_no_end_and_the_tick_continues(queue: Queue, other: Queue) -> None:
    first = queue.publish("first")
    last = queue.send(after=[first], key="k").id
    queue.conn.execute("SET statement_timeout = '60s'")

    with other.conn.transaction():
        other.send(2, key="k", on_conflict="replace")
        lost = queue.settle("complete", queue.claim("first"))
        left = queue.value("SELECT id FROM messages.end_event")
    queue.call("propagate_missed_ends")

    assert (lost, left) == ([], first)
    assert [(c.id, c.payload) for c in queue.claim()] == [(last, "2")]


def test_two_ends_that_need_each_others_locks_do_not_block_each_other(queue: Queue, other: Queue) -> None:
    queue.policy("limited", max_depth=10)
    first, second = queue.publish("limited"), queue.publish("second")
    last = queue.send(topic="limited", after=[first, second], after_failed="cancel").id
    queue.conn.execute("SET statement_timeout = '60s'")

    with other.conn.transaction():
        other.settle("complete", other.claim("limited"))
        assert queue.settle("reject", queue.claim("second"), ["no"]) == []
    queue.call("propagate_missed_ends")

    assert queue.archived(last).result == "cancelled"
    assert queue.value("SELECT count(*) FROM messages.blocked_message") == 0


@pytest.mark.parametrize("held", [True, False])
def test_the_lock_timeout_of_the_transaction_is_not_changed(queue: Queue, other: Queue, held: bool) -> None:
    queue.send(after=[queue.publish("first")])

    with other.conn.transaction(), queue.conn.transaction():
        other.rows("SELECT FROM messages.blocked_message WHERE %s FOR UPDATE", [held])
        queue.conn.execute("SET LOCAL lock_timeout = '7s'; SET CONSTRAINTS ALL IMMEDIATE")
        queue.settle("complete", queue.claim("first"))
        timeout = queue.value("SHOW lock_timeout")

    assert timeout == "7s"
    assert queue.value("SELECT count(*) FROM messages.blocked_message") == held
