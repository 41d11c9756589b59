"""messages.lineage: the messages that a message comes from, and those that came from it."""

from __future__ import annotations

from tests.sql.deaths import copy_of, die
from tests.sql.queue import Queue


def lineage(queue: Queue, message_id: int) -> list[tuple[int, str, str | None]]:
    return [(row.id, row.kind, row.state) for row in queue.rows("SELECT * FROM messages.lineage(%s)", [message_id])]


def again(queue: Queue, died: int) -> int:
    """Redrive it and let it fail again."""
    queue.rows("SELECT * FROM messages.redrive(%s)", [[died]])
    (claimed,) = queue.claim()
    queue.settle("fail", [claimed], ["boom"])
    return int(claimed.id)


def test_the_whole_family_is_returned_for_each_of_its_messages(queue: Queue) -> None:
    first = die(queue)
    second = again(queue, first)
    third = again(queue, second)
    (alive,) = queue.rows("SELECT message_id FROM messages.redrive(%s)", [[third]])

    assert lineage(queue, second) == [
        (first, "ancestor", "failed"),
        (second, "this", "failed"),
        (third, "descendant", "failed"),
        (alive.message_id, "descendant", "ready"),
    ]
    assert [kind for _, kind, _ in lineage(queue, alive.message_id)] == ["ancestor"] * 3 + ["this"]
    assert [row.redrives for row in queue.rows("SELECT * FROM messages.lineage(%s)", [first])] == [0, 1, 2, 3]


def test_a_message_without_relatives_is_returned_alone(queue: Queue) -> None:
    alone = queue.publish()

    assert lineage(queue, alone) == [(alone, "this", "ready")]


def test_a_dead_letter_and_its_original_name_each_other(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    died = die(queue)
    copy = copy_of(queue, died).id

    assert lineage(queue, died) == [(died, "this", "failed"), (copy, "copy", "ready")]
    assert lineage(queue, copy) == [(died, "ancestor", "failed"), (copy, "this", "ready")]


def test_an_ancestor_that_has_left_the_archive_is_named_without_a_state(queue: Queue) -> None:
    first = die(queue)
    second = again(queue, first)
    queue.conn.execute("DELETE FROM messages.message_archive WHERE id = %s", [first])

    assert lineage(queue, second) == [(first, "ancestor", None), (second, "this", "failed")]


def test_a_long_chain_of_redrives_is_returned_up_to_a_hundred(queue: Queue) -> None:
    queue.policy(max_redrives=0)
    died = die(queue)
    for _ in range(102):
        died = again(queue, died)

    assert len(lineage(queue, died)) == 101
