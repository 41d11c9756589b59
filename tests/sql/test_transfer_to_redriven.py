"""messages.transfer_to_redriven: a message that is put back keeps what its ancestor had: its steps, and what comes after it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.queue import Queue


def die_with_a_step(queue: Queue) -> int:
    queue.publish()
    (claimed,) = queue.claim()
    queue.value("SELECT messages.save_step(%s, %s, 'charge', '{\"n\": 1}')", [claimed.id, claimed.claim_id])
    queue.settle("fail", [claimed], ["boom"])
    died: int = claimed.id
    return died


@pytest.mark.parametrize(
    ("how", "topic", "comes_along"),
    [
        ("messages.redrive(ARRAY[%s::bigint])", "t", True),
        ("messages.redrive_edited(%s, '2')", "t", True),
        ("messages.redrive_edited(%s, p_topic => 'other')", "other", False),
    ],
    ids=["as it was", "edited", "to another topic"],
)
def test_its_steps_come_along_unless_another_handler_works_it(
    queue: Queue, how: str, topic: str, comes_along: bool
) -> None:
    died = die_with_a_step(queue)

    again = queue.row(f"SELECT * FROM {how}", [died]).message_id
    (claimed,) = queue.claim(topic)
    kept: list[Any] = queue.rows("SELECT * FROM messages.load_steps(%s, %s)", [again, claimed.claim_id])

    assert [tuple(row) for row in kept] == [("charge", '{"n": 1}') if comes_along else (None, None)]


def test_a_redrive_that_is_undone_hands_nothing_on(queue: Queue) -> None:
    first = queue.publish()
    last = queue.send(after=[first]).id
    queue.settle("fail", queue.claim(), ["boom"])

    queue.conn.execute("BEGIN")
    queue.rows("SELECT * FROM messages.redrive(%s)", [[first]])
    queue.conn.execute("ROLLBACK")

    assert [row.id for row in queue.rows("SELECT id FROM messages.workflow(%s)", [last])] == [first]
