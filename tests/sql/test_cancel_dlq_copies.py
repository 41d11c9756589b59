"""messages.cancel_dlq_copies: a dead letter is not run once its original was redriven."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sql.deaths import copy_of, die
from tests.sql.queue import Background, Queue


def test_copies_of_other_messages_stay(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    died, other = die(queue), die(queue)

    queue.rows("SELECT * FROM messages.redrive(%s)", [[died]])

    assert copy_of(queue, died) is None
    assert copy_of(queue, other).topic == "t.dlq"


def test_a_copy_that_is_being_claimed_is_not_waited_for(queue: Queue, other: Queue, background: Background) -> None:
    queue.policy(dead_letter=True)
    died = die(queue)

    with other.conn.transaction():
        (claimed,) = other.claim("t.dlq")
        redriven = background.start(queue.rows, "SELECT * FROM messages.redrive(%s)", [[died]])
        assert [row.outcome for row in redriven.result(timeout=60)] == ["redriven"]

    assert queue.message(claimed.id).claim_id == claimed.claim_id


def test_an_original_and_its_dead_copy_redriven_in_one_call_leave_one_message(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    died = die(queue)
    claimed = queue.claim("t.dlq")
    queue.settle("fail", claimed, ["worse"])

    queue.rows("SELECT * FROM messages.redrive(%s)", [[died, claimed[0].id]])

    assert [row.topic for row in queue.rows("SELECT topic FROM messages.message")] == ["t"]


def test_a_redrive_that_is_rolled_back_leaves_the_copy(queue: Queue, eventually: Callable[..., Any]) -> None:
    queue.policy(dead_letter=True)
    died = die(queue)

    with queue.conn.transaction(force_rollback=True):
        queue.rows("SELECT * FROM messages.redrive(%s)", [[died]])

    assert copy_of(queue, died).topic == "t.dlq"


def test_a_copy_that_its_worker_released_after_the_redrive_is_cancelled_by_the_next_call(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    died = die(queue)
    working = queue.claim("t.dlq")
    queue.rows("SELECT * FROM messages.redrive(%s)", [[died]])
    queue.settle("release", working)

    (requeued,) = queue.rows("SELECT * FROM messages.requeue_dead_letters(%s)", [[working[0].id]])

    assert (requeued.outcome, requeued.archived_id) == ("redriven_before", died)
    assert queue.archived(working[0].id).result == "cancelled"
    assert queue.ids() == [requeued.message_id]
