"""messages.redrive_rows: what every way of putting dead messages back has in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sql.deaths import copy_of, die, outcomes
from tests.sql.queue import Background, Queue


def test_ids_are_drawn_in_the_order_in_which_the_messages_died(queue: Queue) -> None:
    died = [die(queue) for _ in range(30)]

    queue.rows("SELECT * FROM messages.redrive_rows(%s, NULL, NULL, NULL, false)", [died[::-1]])

    assert [row.redriven_from for row in queue.rows("SELECT redriven_from FROM messages.message ORDER BY id")] == died


def test_two_calls_with_the_same_keys_in_opposite_order_do_not_wait_in_a_circle(
    queue: Queue, other: Queue, third: Queue, background: Background, eventually: Callable[..., Any]
) -> None:
    """Both stop in the middle, at a key that somebody holds just now."""
    abc = [die(queue, key=key) for key in ("a", "middle", "z")]
    cba = [die(queue, key=key) for key in ("z", "middle", "a")]

    with third.conn.transaction(force_rollback=True):
        third.publish(key="middle")
        first = background.start(outcomes, queue, "redrive", abc)
        eventually(lambda: background.is_blocked(queue))
        second = background.start(outcomes, other, "redrive", cba)
        eventually(lambda: background.is_blocked(other))

    assert set(first.result(timeout=60).values()) == {"redriven"}
    assert set(second.result(timeout=60).values()) == {"superseded"}


def test_the_copy_stands_for_an_original_that_has_left_the_archive(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    died = die(queue, payload={"n": 1}, channel="c", key="k")
    copy = copy_of(queue, died)
    queue.conn.execute("DELETE FROM messages.message_archive")

    told = outcomes(queue, "redrive", [died])

    assert told == {died: "redriven"}
    (new,) = queue.rows("SELECT * FROM messages.message")
    assert (new.topic, new.payload, new.channel, new.redriven_from, new.dlq_moved_at) == (
        "t",
        {"n": 1},
        "c",
        died,
        None,
    )
    assert queue.archived(copy.id).result == "cancelled"


def test_a_thousand_messages_take_one_call_and_no_minutes(queue: Queue) -> None:
    queue.publish_many(1000)
    claimed = queue.claim(limit=1000)
    queue.settle("fail", claimed, ["boom"] * 1000)
    queue.conn.execute("SET statement_timeout = '30s'")

    told = outcomes(queue, "redrive", [c.id for c in claimed])

    assert set(told.values()) == {"redriven"}
    assert len(queue.ids()) == 1000
