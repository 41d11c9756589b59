"""messages.set_progress: the progress of a running message, written only by its holder."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from tests.sql.queue import Queue

HALF = {"done": 50, "total": 100, "unit": "rows"}


def note(queue: Queue, claimed: list[Any], *progress: Any, **named: Any) -> list[int]:
    return queue.settle("set_progress", claimed, [Jsonb(each) for each in progress], **named)


def test_progress_is_stored_with_the_message_and_replaces_the_previous_one(queue: Queue) -> None:
    published = queue.publish()
    claimed = queue.claim()

    assert note(queue, claimed, {"done": 1}) == []
    assert note(queue, claimed, HALF) == []

    assert queue.message(published).progress == HALF


def test_each_message_of_a_batch_has_its_own(queue: Queue) -> None:
    first, second = queue.publish_many(2)
    claimed = queue.claim()

    note(queue, claimed, {"done": 1}, {"done": 2})

    assert (queue.message(first).progress, queue.message(second).progress) == ({"done": 1}, {"done": 2})


def test_the_archive_has_the_last_progress(queue: Queue) -> None:
    published = queue.publish()
    claimed = queue.claim()
    note(queue, claimed, HALF)

    queue.settle("complete", claimed)

    assert queue.archived(published).progress == HALF


def test_a_lost_lock_is_reported_and_nothing_changes(queue: Queue) -> None:
    published = queue.publish()
    stale = queue.claim()
    queue.settle("release", stale)
    queue.claim()

    assert note(queue, stale, HALF) == [published]
    assert queue.message(published).progress is None


def test_a_message_that_ended_is_lost(queue: Queue) -> None:
    published = queue.publish()
    claimed = queue.claim()
    queue.call("cancel", [published])

    assert note(queue, claimed, HALF) == [published]


def test_with_no_wait_a_locked_row_is_skipped(queue: Queue, other: Queue) -> None:
    held, free = queue.publish_many(2)
    claimed = queue.claim()

    with queue.conn.transaction():
        queue.conn.execute("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [held])
        assert note(other, claimed, {"done": 1}, {"done": 2}, wait=False) == []

    assert (queue.message(held).progress, queue.message(free).progress) == (None, {"done": 2})


def test_no_progress_is_no_error(queue: Queue) -> None:
    assert queue.call("set_progress", [], [], []) == []


def test_it_writes_no_index(own_database: Any) -> None:
    queue = Queue(own_database.connect())
    queue.publish_many(50)
    claimed = queue.claim()
    updated = "SELECT pg_stat_get_xact_tuples_updated(c) AS every, pg_stat_get_xact_tuples_hot_updated(c) AS hot FROM CAST('messages.message' AS regclass) AS c"

    with queue.conn.transaction():
        before = queue.row(updated)
        note(queue, claimed, *[{"done": n} for n in range(50)])
        after = queue.row(updated)

    assert (after.every - before.every, after.hot - before.hot) == (50, 50)
