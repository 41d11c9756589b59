"""messages.requeue_dead_letters: a waiting copy in a .dlq topic returns to its original topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sql.deaths import copy_of, die, outcomes
from tests.sql.queue import Background, Queue


@pytest.fixture
def died(queue: Queue) -> int:
    queue.policy(dead_letter=True)
    return die(queue, payload={"n": 1}, key="k", channel="c", max_attempts=1, headers={"h": 1})


def test_it_returns_to_its_topic_with_all_its_columns(queue: Queue, died: int) -> None:
    copy = copy_of(queue, died)

    (row,) = queue.rows("SELECT * FROM messages.requeue_dead_letters(%s)", [[copy.id]])

    assert (row.copy_id, row.archived_id, row.outcome) == (copy.id, died, "redriven")
    (new,) = queue.rows("SELECT * FROM messages.message")
    assert (new.id, new.topic, new.key, new.channel, new.payload, new.headers) == (
        row.message_id,
        "t",
        "k",
        "c",
        {"n": 1},
        {"h": 1},
    )
    assert (new.redriven_from, new.redrives, new.attempts, new.max_attempts) == (died, 1, 0, 1)
    assert (new.origin_id, new.original_topic, new.dlq_moved_at) == (None, None, None)


def test_the_copy_ends_as_cancelled_with_a_reason(queue: Queue, died: int) -> None:
    copy = copy_of(queue, died)

    (row,) = queue.rows("SELECT * FROM messages.requeue_dead_letters(%s)", [[copy.id]])

    assert queue.archived(copy.id).result == "cancelled"
    assert queue.archived(copy.id).error == f"its original {died} was put back as message {row.message_id}"


def test_requeue_and_redrive_share_one_log(queue: Queue, died: int) -> None:
    copy = copy_of(queue, died)
    queue.rows("SELECT * FROM messages.requeue_dead_letters(%s)", [[copy.id]])

    assert outcomes(queue, "redrive", [died]) == {died: "redriven_before"}
    assert len(queue.ids()) == 1


def test_of_a_concurrent_requeue_and_redrive_only_the_first_succeeds(
    queue: Queue, other: Queue, background: Background, eventually: Callable[..., Any], died: int
) -> None:
    copy = copy_of(queue, died)

    with queue.conn.transaction():
        queue.rows("SELECT * FROM messages.redrive(%s)", [[died]])
        second = background.start(outcomes, other, "requeue_dead_letters", [copy.id])
        eventually(lambda: background.is_blocked(other))

    assert second.result(timeout=60) == {copy.id: "not_waiting"}
    assert len(queue.ids()) == 1


def test_of_a_concurrent_redrive_and_requeue_only_the_first_succeeds(
    queue: Queue, other: Queue, background: Background, eventually: Callable[..., Any], died: int
) -> None:
    copy = copy_of(queue, died)

    with queue.conn.transaction():
        queue.rows("SELECT * FROM messages.requeue_dead_letters(%s)", [[copy.id]])
        second = background.start(outcomes, other, "redrive", [died])
        eventually(lambda: background.is_blocked(other))

    assert second.result(timeout=60) == {died: "redriven_before"}
    assert len(queue.ids()) == 1


def test_a_running_or_ended_copy_and_an_ordinary_message_are_not_moved(queue: Queue, died: int) -> None:
    (working,) = queue.claim("t.dlq")
    ordinary = queue.publish()

    assert outcomes(queue, "requeue_dead_letters", [working.id, ordinary, died]) == dict.fromkeys(
        [died, working.id, ordinary], "not_waiting"
    )
    assert queue.ids() == [working.id, ordinary]


def test_a_copy_whose_key_is_taken_stays_in_the_dlq(queue: Queue, died: int) -> None:
    copy = copy_of(queue, died)
    queue.publish(key="k")

    assert outcomes(queue, "requeue_dead_letters", [copy.id]) == {copy.id: "superseded"}
    assert copy_of(queue, died) is not None


def test_a_copy_that_outlived_its_archive_row_is_requeued_once_too(queue: Queue, died: int) -> None:
    copy = copy_of(queue, died)
    queue.conn.execute("DELETE FROM messages.message_archive")

    (row,) = queue.rows("SELECT * FROM messages.requeue_dead_letters(%s)", [[copy.id]])

    assert row.outcome == "redriven"
    assert queue.message(row.message_id).payload == {"n": 1}
    assert outcomes(queue, "requeue_dead_letters", [copy.id]) == {copy.id: "not_waiting"}


def test_a_requeue_counts_towards_max_redrives(queue: Queue, died: int) -> None:
    queue.policy(max_redrives=1)
    queue.rows("SELECT * FROM messages.requeue_dead_letters(%s)", [[copy_of(queue, died).id]])
    again = queue.claim("t")
    queue.settle("fail", again, ["boom"])
    copy = copy_of(queue, again[0].id)

    assert outcomes(queue, "requeue_dead_letters", [copy.id]) == {copy.id: "too_often"}
    assert copy_of(queue, again[0].id) is not None
    assert (
        queue.rows("SELECT outcome FROM messages.requeue_dead_letters(%s, p_force => true)", [[copy.id]])[0].outcome
        == "redriven"
    )


@pytest.mark.parametrize("ids", [[], None])
def test_no_ids_move_nothing(queue: Queue, ids: Any) -> None:
    assert queue.rows("SELECT * FROM messages.requeue_dead_letters(%s)", [ids]) == []
