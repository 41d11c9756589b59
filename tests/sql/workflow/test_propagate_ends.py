"""How the end of a message reaches those that come after it."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue

# messages.propagate_ends: successors learn how their predecessors ended, a bounded number at once. The effects:
# test_chains.py.


def ended(queue: Queue, message_id: int, result: str = "success") -> None:
    """Record an end that its transaction has not propagated."""
    queue.conn.execute("SET session_replication_role = replica")
    queue.conn.execute("INSERT INTO messages.end_event VALUES (%s, %s)", [message_id, result])
    queue.conn.execute("RESET session_replication_role")


def waiting(queue: Queue) -> int:
    count: int = queue.value("SELECT count(*) FROM messages.blocked_message")
    return count


def test_an_end_is_deleted_once_all_its_successors_have_learnt_of_it(queue: Queue) -> None:
    first = queue.publish()
    for _ in range(5):
        queue.send(after=[first])
    ended(queue, first)

    did = [queue.call("propagate_ends", [first], False, 2) for _ in range(3)]
    left = queue.value("SELECT count(*) FROM messages.end_event")

    assert (did, waiting(queue), left) == ([2, 2, 1], 0, 0)


def test_locked_successors_are_left_and_so_is_the_end(queue: Queue, other: Queue) -> None:
    first = queue.publish()
    held, free = queue.send(after=[first]).id, queue.send(after=[first]).id
    ended(queue, first)

    with other.conn.transaction():
        other.rows("SELECT FROM messages.blocked_message WHERE id = %s FOR UPDATE", [held])
        did = queue.call("propagate_ends", [first], False)
    again = queue.call("propagate_ends", [first], False)

    assert (did, again, waiting(queue)) == (1, 1, 0)
    assert free in queue.ids()


# propagate_ends_at_commit: The trigger propagate_ends_at_commit: a transaction propagates its ends when it commits,
# once, and a bounded number. The rest: test_chains.py.


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
        "SELECT count(*) FROM generate_series(1, 1100), LATERAL messages.publish('next', "
        "to_jsonb(generate_series), p_after => ARRAY[%s::bigint])",
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


# messages.propagate_missed_ends: the tick finds ends that were not propagated. The races: test_chains.py.


def lose(queue: Queue, *message_ids: int) -> None:
    """Delete messages without propagating their ends, and without an archive row."""
    queue.conn.execute("DELETE FROM messages.message WHERE id = ANY (%s)", [list(message_ids)])


def check_at(queue: Queue) -> bool:
    """Whether each tick checks the only blocked message."""
    return bool(queue.value("SELECT check_at <= messages.now() FROM messages.blocked_message"))


def test_a_predecessor_that_is_gone_counts_as_a_success(queue: Queue) -> None:
    first = queue.publish()
    last = queue.send(after=[first], topic="next").id
    lose(queue, first)

    queue.call("propagate_missed_ends")

    assert [c.id for c in queue.claim("next")] == [last]


def test_each_tick_checks_until_all_earlier_transactions_have_ended_and_then_once_an_hour(
    queue: Queue, other: Queue
) -> None:
    other.conn.execute("BEGIN")
    other.value("SELECT pg_current_xact_id()::text")
    queue.send(after=[queue.publish()])

    seen = []
    for _ in range(3):
        queue.call("propagate_missed_ends")
        seen.append(check_at(queue))
    other.conn.execute("COMMIT")
    queue.call("propagate_missed_ends")
    seen.append(check_at(queue))
    queue.later("61 minutes")
    seen.append(check_at(queue))

    assert seen == [True, True, True, False, True]


def test_within_a_tick_its_id_is_drawn_after_it_has_read_new_messages(queue: Queue) -> None:
    queue.send(after=[queue.publish()])

    queue.rows("SELECT * FROM messages.tick()")
    queue.rows("SELECT * FROM messages.tick()")

    assert check_at(queue) is False


def test_in_a_transaction_that_has_an_id_already_no_message_is_stamped(queue: Queue) -> None:
    queue.send(after=[queue.publish()])

    for _ in range(3):
        with queue.conn.transaction():
            queue.value("SELECT pg_current_xact_id()::text")
            queue.call("propagate_missed_ends")

    assert check_at(queue) is True


def test_it_checks_a_bounded_number_the_longest_unchecked_first(queue: Queue) -> None:
    firsts = queue.publish_many(5, "first")
    lasts = [queue.send(after=[first]).id for first in firsts]
    lose(queue, *firsts)

    queue.call("propagate_missed_ends", 2)
    some = queue.value("SELECT count(*) FROM messages.blocked_message")
    queue.call("propagate_missed_ends", 2)
    queue.call("propagate_missed_ends", 2)

    assert some == 3
    assert sorted(c.id for c in queue.claim()) == lasts


def test_locked_messages_are_skipped(queue: Queue, other: Queue) -> None:
    first = queue.publish()
    queue.send(after=[first])
    lose(queue, first)

    with other.conn.transaction():
        other.rows("SELECT FROM messages.blocked_message FOR UPDATE")
        queue.conn.execute("SET lock_timeout = '1s'")
        queue.call("propagate_missed_ends")
    queue.conn.execute("RESET lock_timeout")

    assert queue.value("SELECT count(*) FROM messages.blocked_message") == 1


def test_a_redrive_that_was_not_propagated_is_found(queue: Queue) -> None:
    first = queue.publish()
    last = queue.send(after=[first]).id
    queue.settle("fail", queue.claim(), ["boom"])
    queue.conn.execute("SELECT setval('messages.awaited_flag', 1)")
    again = queue.row("SELECT message_id FROM messages.redrive(%s)", [[first]]).message_id

    queue.later("2 hours")
    queue.call("propagate_missed_ends")

    assert [row.id for row in queue.rows("SELECT id FROM messages.workflow(%s)", [last])] == [again]


def test_the_tick_continues_what_a_settle_left(queue: Queue) -> None:
    first = queue.publish()
    lasts = [queue.send(after=[first], topic="next").id for _ in range(3)]
    queue.conn.execute("SELECT set_config('messages.propagated', '1001', false)")
    queue.settle("complete", queue.claim())
    at_once = len(queue.claim("next"))
    queue.conn.execute("SELECT set_config('messages.propagated', '', false)")

    queue.call("propagate_missed_ends")

    assert at_once == 0
    assert sorted(c.id for c in queue.claim("next")) == lasts


def test_a_stamp_from_the_future_of_another_cluster_is_ignored(queue: Queue) -> None:
    queue.send(after=[queue.publish()])
    queue.conn.execute("UPDATE messages.blocked_message SET checked_below = '9000000000000'")

    seen = []
    for _ in range(2):
        queue.call("propagate_missed_ends")
        seen.append(check_at(queue))

    assert seen == [True, False]
