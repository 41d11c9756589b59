"""The record of what an export of the archive has copied."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from psycopg import errors

from pgrouse.client.call import Call
from pgrouse.client.queries.pipeline.archive_row import last_row, nth_row, row_within_bytes, rows_after
from tests.server.postgres import Database
from tests.sql.deaths import die
from tests.sql.exports import OPEN, export, from_elsewhere
from tests.sql.queue import Queue, Row

# messages.advance_export: an export records its position, unless another session has moved it.


@pytest.fixture
def _opened(queue: Queue) -> None:
    queue.row(OPEN, ["e", "/lake", "1-2-3", "17", 4])


def advance(queue: Queue, start: tuple[str, int], end: tuple[str, int], name: str = "e") -> bool:
    moved: bool = queue.value("SELECT messages.advance_export(%s, %s::xid8, %s, %s::xid8, %s)", [name, *start, *end])
    return moved


def position(queue: Queue) -> tuple[str, int]:
    at = queue.row("SELECT xid::text AS xid, id FROM messages.export_cursor WHERE name = 'e'")
    return at.xid, at.id


@pytest.mark.usefixtures("_opened")
def test_it_moves_the_position_and_records_when(queue: Queue) -> None:
    before = queue.value("SELECT advanced_at FROM messages.export_cursor")

    assert advance(queue, ("17", 4), ("21", 1)) is True
    assert position(queue) == ("21", 1)
    assert queue.value("SELECT advanced_at FROM messages.export_cursor") > before


@pytest.mark.usefixtures("_opened")
def test_a_caller_with_a_wrong_start_position_changes_nothing(queue: Queue) -> None:
    advance(queue, ("17", 4), ("21", 1))

    assert advance(queue, ("17", 4), ("25", 1)) is False
    assert position(queue) == ("21", 1)


@pytest.mark.usefixtures("_opened")
def test_of_two_concurrent_calls_one_moves_the_position(queue: Queue, other: Queue) -> None:
    moved = [advance(each, ("17", 4), ("21", 1)) for each in (queue, other)]

    assert moved == [True, False]


@pytest.mark.usefixtures("_opened")
def test_a_deleted_export_is_not_created_again(queue: Queue) -> None:
    queue.call("delete_export", "e")

    assert advance(queue, ("17", 4), ("21", 1)) is False


@pytest.mark.usefixtures("_opened")
def test_an_export_of_another_cluster_does_not_move(queue: Queue) -> None:
    from_elsewhere(queue)

    assert advance(queue, ("17", 4), ("21", 1)) is False


@pytest.mark.usefixtures("_opened")
def test_the_position_does_not_move_back(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="goes forward"):
        advance(queue, ("17", 4), ("17", 3))


@pytest.mark.usefixtures("_opened")
def test_the_position_does_not_pass_a_running_transaction(queue: Queue, other: Queue) -> None:
    with other.conn.transaction():
        running = str(other.call("draw_xid"))

        with pytest.raises(errors.InvalidParameterValue, match="may still come"):
            advance(queue, ("17", 4), (running, 1))


# messages.delete_export: the retention no longer waits for the export.


def test_the_export_is_deleted_and_the_others_stay(queue: Queue) -> None:
    export(queue, "a")
    export(queue, "b")

    assert queue.call("delete_export", "a") is True
    assert [row.name for row in queue.rows("SELECT name FROM messages.export_cursor")] == ["b"]


def test_an_unknown_export_deletes_nothing(queue: Queue) -> None:
    assert queue.call("delete_export", "a") is False


# messages.exported_position: the position that every export has passed.

BOUND = "SELECT b.xid::text AS xid, b.id FROM messages.exported_position() AS b"


def test_transactions_are_ordered_as_numbers_and_before_ids(queue: Queue) -> None:
    queue.row("SELECT * FROM messages.open_export('a', '/', '1', '9', 5)")
    queue.row("SELECT * FROM messages.open_export('b', '/', '1', '10', 4)")

    assert queue.row(BOUND) == ("9", 5)


# messages.list_exports: which exports the retention waits for.

HELD = "SELECT * FROM messages.list_exports()"


def end_of_its_day(queue: Queue, message_id: int) -> Row:
    return queue.value(
        "SELECT (date_trunc('day', archived_at AT TIME ZONE 'UTC') + interval '1 day') AT TIME ZONE 'UTC' "
        "FROM messages.message_archive WHERE id = %s",
        [message_id],
    )


def test_without_an_export_the_list_is_empty(queue: Queue) -> None:
    die(queue)

    assert queue.rows(HELD) == []


def test_an_export_that_has_read_everything_holds_nothing(queue: Queue) -> None:
    export(queue, upto=die(queue))
    queue.later("100 days")

    (row,) = queue.rows(HELD)
    assert (row.name, row.lake, row.oldest_at, row.held_since) == ("e", "/lake", None, None)


def test_unread_rows_are_not_held_before_their_retention_is_over(queue: Queue) -> None:
    first, second = die(queue), die(queue)
    export(queue, upto=first)

    (row,) = queue.rows(HELD)

    assert (row.oldest_at, row.held_since) == (queue.archived(second).archived_at, None)


def test_after_the_retention_rows_are_held_since_then(queue: Queue) -> None:
    first, second = die(queue), die(queue)
    export(queue, upto=first)
    queue.later("32 days")

    (row,) = queue.rows(HELD)

    assert row.held_since == end_of_its_day(queue, second) + timedelta(days=30)


def test_the_shortest_retention_of_a_topic_is_the_first_to_wait(queue: Queue) -> None:
    queue.policy("short", retention="1 day")
    died = die(queue)
    export(queue)
    queue.later("3 days")

    (row,) = queue.rows(HELD)

    assert row.held_since == end_of_its_day(queue, died) + timedelta(days=1)


def test_an_export_of_another_cluster_holds_everything(queue: Queue) -> None:
    died = die(queue)
    export(queue, upto=died)
    from_elsewhere(queue)

    (row,) = queue.rows(HELD)

    assert row.oldest_at == queue.archived(died).archived_at


# messages.lock_export: one session at a time holds the name of an export.


def test_one_session_holds_it_with_the_rights_of_its_role(own_queue: Queue, own_database: Database) -> None:
    second = Queue(own_database.connect())
    for queue in (own_queue, second):
        queue.conn.execute("SET ROLE messages_operator")

    assert own_queue.call("lock_export", "n") is True
    assert second.call("lock_export", "n") is False


# messages.open_export: an export starts to hold the archive.


def test_it_begins_before_the_first_row(queue: Queue) -> None:
    opened = queue.row("SELECT * FROM messages.open_export('e', 's3a://lake', '1-2-3')")

    assert (opened.lake, opened.lake_id, str(opened.xid), opened.id) == ("s3a://lake", "1-2-3", "0", 0)
    assert opened.system_identifier == queue.value("SELECT system_identifier::text FROM pg_control_system()")


def test_it_begins_at_the_position_of_an_existing_lake(queue: Queue) -> None:
    opened = queue.row(OPEN, ["e", "/lake", "1-2-3", "17", 4])

    assert (str(opened.xid), opened.id) == ("17", 4)


def test_an_open_export_is_not_changed(queue: Queue) -> None:
    queue.row(OPEN, ["e", "/lake", "1-2-3", "17", 4])

    again = queue.row(OPEN, ["e", "/other", "4-5-6", "99", 9])

    assert (again.lake, again.lake_id, str(again.xid), again.id) == ("/lake", "1-2-3", "17", 4)


@pytest.mark.parametrize("name", [None, "", " ", "-e", "e" * 201])
def test_an_invalid_name_is_refused(queue: Queue, name: str | None) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="the name of an export is"):
        queue.row(OPEN, [name, "/lake", "1-2-3", "0", 0])


# messages.unlock_export: releases an export for another session.


def test_another_session_may_lock_it_then(own_queue: Queue, own_database: Database) -> None:
    second = Queue(own_database.connect())
    own_queue.conn.execute("SET ROLE messages_operator")
    own_queue.call("lock_export", "n")

    assert second.call("unlock_export", "n") is False
    assert own_queue.call("unlock_export", "n") is True
    assert second.call("lock_export", "n") is True


# An export reads its batches in the order of the archive (queries/pipeline/archive_row.py), and stops at their ends.

ENDED = """
    INSERT INTO messages.message_archive (
      id, topic, priority, payload, created_at, available_at, attempts, claim_id, result)
    SELECT n, 't', 5, '{}', now(), now(), 1, n, 'success' FROM generate_series(1, 20000) AS n
"""
BATCH = 100
ENDS: dict[str, Call[Any]] = {
    "a number of rows": nth_row(("0", 0), str(2**63), "TRUE", BATCH),
    "a size": row_within_bytes(("0", 0), str(2**63), "TRUE", BATCH, 1_000_000),
    "the last row": last_row(("0", 0), str(2**63), "TRUE"),
    "what is left, up to a number": rows_after(("0", 0), "TRUE", BATCH),
}


@pytest.mark.parametrize("is_analyzed", [False, True])
@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_a_batch_is_found_without_reading_what_comes_after_it(
    queue: Queue, end: str, is_analyzed: bool
) -> None:
    queue.conn.execute(ENDED)
    if is_analyzed:
        queue.conn.execute("ANALYZE messages.message_archive")

    assert rows_read(queue, ENDS[end]) <= BATCH


def rows_read(queue: Queue, call: Call[Any]) -> int:
    """Return how many rows of tables and indexes a call reads."""
    found = queue.conn.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + call.statement, call.values).fetchone()
    assert found is not None
    return sum(
        int((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
        for node in nodes(found[0][0]["Plan"])
        if "Relation Name" in node
    )


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan.get("Plans", []):
        yield from nodes(each)
