"""messages.propagate_missed_ends: the tick finds ends that were not propagated. The races: test_chains.py."""

from __future__ import annotations

from tests.sql.queue import Queue


def lose(queue: Queue, *message_ids: int) -> None:
    """Delete messages without propagating their ends, and without an archive row."""
    queue.conn.execute("DELETE FROM messages.message WHERE id = ANY (%s)", [list(message_ids)])


def check_at(queue: Queue) -> bool:
    """Whether each tick checks the only blocked message."""
    return bool(queue.value("SELECT check_at <= messages.now() FROM messages.blocked_message"))


def test_without_blocked_messages_it_does_nothing(queue: Queue) -> None:
    queue.publish()

    assert queue.call("propagate_missed_ends") == 0


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


def test_ends_without_successors_are_deleted_before_the_others_are_propagated(queue: Queue) -> None:
    first = queue.publish("first")
    last = queue.send(after=[first]).id
    queue.conn.execute("SELECT set_config('messages.propagated', '1001', false)")
    queue.settle("complete", queue.claim("first"))
    queue.conn.execute("INSERT INTO messages.end_event SELECT -n, 'success' FROM generate_series(1, 40) AS n")
    queue.conn.execute("SELECT set_config('messages.propagated', '', false)")
    queue.conn.execute("UPDATE messages.blocked_message SET check_at = 'infinity'")

    queue.call("propagate_missed_ends", 5)

    assert [c.id for c in queue.claim()] == [last]
    assert queue.value("SELECT count(*) FROM messages.end_event") == 0


def test_a_stamp_from_the_future_of_another_cluster_is_ignored(queue: Queue) -> None:
    queue.send(after=[queue.publish()])
    queue.conn.execute("UPDATE messages.blocked_message SET checked_below = '9000000000000'")

    seen = []
    for _ in range(2):
        queue.call("propagate_missed_ends")
        seen.append(check_at(queue))

    assert seen == [True, False]
