"""messages.advance_export: an export records its position, unless another session has moved it."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.sql.exports import OPEN, from_elsewhere
from tests.sql.queue import Queue


@pytest.fixture(autouse=True)
def _opened(queue: Queue) -> None:
    queue.row(OPEN, ["e", "/lake", "1-2-3", "17", 4])


def advance(queue: Queue, start: tuple[str, int], end: tuple[str, int], name: str = "e") -> bool:
    moved: bool = queue.value("SELECT messages.advance_export(%s, %s::xid8, %s, %s::xid8, %s)", [name, *start, *end])
    return moved


def position(queue: Queue) -> tuple[str, int]:
    at = queue.row("SELECT xid::text AS xid, id FROM messages.export_cursor WHERE name = 'e'")
    return at.xid, at.id


def test_it_moves_the_position_and_records_when(queue: Queue) -> None:
    before = queue.value("SELECT advanced_at FROM messages.export_cursor")

    assert advance(queue, ("17", 4), ("21", 1)) is True
    assert position(queue) == ("21", 1)
    assert queue.value("SELECT advanced_at FROM messages.export_cursor") > before


def test_a_caller_with_a_wrong_start_position_changes_nothing(queue: Queue) -> None:
    advance(queue, ("17", 4), ("21", 1))

    assert advance(queue, ("17", 4), ("25", 1)) is False
    assert position(queue) == ("21", 1)


def test_of_two_concurrent_calls_one_moves_the_position(queue: Queue, other: Queue) -> None:
    moved = [advance(each, ("17", 4), ("21", 1)) for each in (queue, other)]

    assert moved == [True, False]


def test_a_deleted_export_is_not_created_again(queue: Queue) -> None:
    queue.call("delete_export", "e")

    assert advance(queue, ("17", 4), ("21", 1)) is False


def test_an_export_of_another_cluster_does_not_move(queue: Queue) -> None:
    from_elsewhere(queue)

    assert advance(queue, ("17", 4), ("21", 1)) is False


def test_the_position_does_not_move_back(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="goes forward"):
        advance(queue, ("17", 4), ("17", 3))


def test_the_position_does_not_pass_a_running_transaction(queue: Queue, other: Queue) -> None:
    with other.conn.transaction():
        running = str(other.call("draw_xid"))

        with pytest.raises(errors.InvalidParameterValue, match="may still come"):
            advance(queue, ("17", 4), (running, 1))
