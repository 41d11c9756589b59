"""What the end of a message sends to those that wait."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sql.queue import Background, Queue, Row

# messages.announce_ends: ends are recorded only for messages that have successors or waiters.


def recorded(queue: Queue, ids: list[int], result: str, isolation: str = "READ COMMITTED") -> list[Row]:
    """Return the events that are recorded while the transaction is open: they are propagated at its commit."""
    queue.conn.execute(f"BEGIN ISOLATION LEVEL {isolation}")
    queue.call("announce_ends", ids, result)
    rows = [tuple(row) for row in queue.rows("SELECT id, result FROM messages.end_event ORDER BY id")]
    queue.conn.execute("ROLLBACK")
    return rows


def test_only_messages_with_successors_or_waiters_are_recorded(queue: Queue) -> None:
    first, apart = queue.publish_many(2)
    last = queue.send(after=[first]).id

    assert recorded(queue, [first, apart, last], "failed") == [(first, "failed"), (last, "failed")]


def test_above_read_committed_every_end_is_recorded(queue: Queue) -> None:
    assert recorded(queue, [queue.publish()], "success", "REPEATABLE READ") != []


def test_steps_of_dead_messages_stay_and_those_of_others_are_deleted(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.step SELECT n, 's', '1', 1 FROM generate_series(1, 3) AS n")

    queue.call("announce_ends", [1], "success")
    queue.call("announce_ends", [2], "cancelled")
    queue.call("announce_ends", [3], "failed")

    assert [row.message_id for row in queue.rows("SELECT message_id FROM messages.step")] == [3]


# messages.raise_awaited_flag: from then on, ends check for waiters, successors and steps. What lowers it:
# test_wait_for.py.


def test_the_flag_is_raised_at_once_and_stays_after_a_rollback(queue: Queue, other: Queue) -> None:
    queue.conn.execute("SELECT setval('messages.awaited_flag', 1)")

    queue.conn.execute("BEGIN")
    queue.call("raise_awaited_flag")
    during = other.value("SELECT pg_sequence_last_value('messages.awaited_flag')")
    queue.conn.execute("ROLLBACK")

    assert (during, queue.value("SELECT pg_sequence_last_value('messages.awaited_flag')")) == (2, 2)
    queue.conn.execute("SELECT setval('messages.awaited_flag', 1)")


def raise_awaited_flag_wait(queue: Queue) -> None:
    queue.rows("SELECT * FROM messages.wait_for(%s)", [queue.publish()])


def park(queue: Queue) -> None:
    queue.send(after=[queue.publish()])


def keep(queue: Queue) -> None:
    queue.publish()
    (claimed,) = queue.claim(limit=1)
    queue.value("SELECT messages.save_step(%s, %s, 's', '1')", [claimed.id, claimed.claim_id])


@pytest.mark.parametrize("raise_it", [raise_awaited_flag_wait, park, keep])
@pytest.mark.parametrize("mark", [1, 2])
def test_it_is_not_lowered_while_a_session_that_raised_it_is_open(
    queue: Queue, other: Queue, raise_it: Callable[[Queue], None], mark: int
) -> None:
    queue.conn.execute("SELECT setval('messages.awaited_flag', %s)", [mark])
    with other.conn.transaction(force_rollback=True):
        raise_it(other)
        queue.call("prune_waiters")
        under_way = queue.value("SELECT pg_sequence_last_value('messages.awaited_flag')")
    queue.call("prune_waiters")

    assert (under_way, queue.value("SELECT pg_sequence_last_value('messages.awaited_flag')")) == (2, 1)


@pytest.mark.parametrize("raise_it", [raise_awaited_flag_wait, park, keep])
def test_a_session_that_raises_it_during_the_check_waits_for_it_and_raises_it_again(
    queue: Queue, other: Queue, background: Background, raise_it: Callable[[Queue], None]
) -> None:
    """The check holds these locks until it has ended; here they are held for longer."""
    queue.conn.execute("SELECT setval('messages.awaited_flag', 2)")
    with queue.conn.transaction():
        queue.conn.execute("LOCK TABLE messages.waiter, messages.blocked_message, messages.step IN SHARE MODE")
        raised = background.start(raise_it, other)
        while not background.is_blocked(other):
            assert not raised.done()
        queue.call("prune_waiters")
        lowered = queue.value("SELECT pg_sequence_last_value('messages.awaited_flag')")

    raised.result(timeout=60)
    assert (lowered, queue.value("SELECT pg_sequence_last_value('messages.awaited_flag')")) == (1, 2)
    queue.conn.execute("SELECT setval('messages.awaited_flag', 1)")


def test_it_stays_while_a_message_has_predecessors_or_a_step_is_saved(queue: Queue) -> None:
    first = queue.publish()
    queue.send(after=[first])
    queue.call("prune_waiters")
    while_parked = queue.value("SELECT pg_sequence_last_value('messages.awaited_flag')")
    (claimed,) = queue.claim()
    queue.value("SELECT messages.save_step(%s, %s, 's', '1')", [claimed.id, claimed.claim_id])
    queue.conn.execute("DELETE FROM messages.blocked_message; DELETE FROM messages.dependency")
    queue.call("prune_waiters")
    while_kept = queue.value("SELECT pg_sequence_last_value('messages.awaited_flag')")
    queue.settle("complete", [claimed])
    queue.call("prune_waiters")

    assert (while_parked, while_kept) == (2, 2)
    assert queue.value("SELECT pg_sequence_last_value('messages.awaited_flag')") == 1


def test_the_tick_raises_a_flag_that_the_sequence_lacks(queue: Queue) -> None:
    queue.send(after=[queue.publish()])
    queue.conn.execute("SELECT setval('messages.awaited_flag', 1)")

    queue.call("prune")

    assert queue.value("SELECT pg_sequence_last_value('messages.awaited_flag')") == 2
