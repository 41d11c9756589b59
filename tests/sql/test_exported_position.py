"""messages.exported_position: the position that every export has passed."""

from __future__ import annotations

from tests.sql.deaths import die
from tests.sql.exports import POSITION, export, from_elsewhere
from tests.sql.queue import Queue

BOUND = "SELECT b.xid::text AS xid, b.id FROM messages.exported_position() AS b"


def test_without_an_export_there_is_none(queue: Queue) -> None:
    assert queue.row(BOUND) == (None, None)


def test_the_export_furthest_behind_decides(queue: Queue) -> None:
    first, second = die(queue), die(queue)
    export(queue, "ahead", upto=second)
    export(queue, "behind", upto=first)

    assert queue.row(BOUND) == queue.row(POSITION, [first])


def test_transactions_are_ordered_as_numbers_and_before_ids(queue: Queue) -> None:
    queue.row("SELECT * FROM messages.open_export('a', '/', '1', '9', 5)")
    queue.row("SELECT * FROM messages.open_export('b', '/', '1', '10', 4)")

    assert queue.row(BOUND) == ("9", 5)


def test_the_position_of_an_export_of_another_cluster_is_unknown(queue: Queue) -> None:
    died = die(queue)
    export(queue, "here", upto=died)
    export(queue, "restored", upto=died)
    from_elsewhere(queue, "restored")

    assert queue.row(BOUND) == ("0", 0)
