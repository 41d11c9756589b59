"""messages.purge_archive: an operator deletes rows of the archive, in short transactions."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg import errors

from tests.sql.deaths import die, die_ago
from tests.sql.exports import export
from tests.sql.queue import Queue


@pytest.fixture
def queue(own_queue: Queue) -> Queue:
    """A database of its own: without pages of other tests."""
    return own_queue


def purge(queue: Queue, before: datetime, topic: str | None = None, pages: int = 1000) -> list[int]:
    """Purge the archive and return how many rows each call deleted."""
    deleted, place = [], None
    while True:
        row = queue.row("SELECT * FROM messages.purge_archive(%s, %s, %s, %s)", [before, topic, place, pages])
        deleted.append(row.deleted)
        place = row.place
        if place is None:
            return deleted


def ids(queue: Queue) -> list[int]:
    return [row.id for row in queue.rows("SELECT id FROM messages.message_archive ORDER BY id")]


def test_rows_that_ended_before_a_time_are_deleted_on_every_day_and_the_others_stay(queue: Queue) -> None:
    old, older = die_ago(queue, "2 hours"), die_ago(queue, "40 days")
    new = die(queue)

    deleted = purge(queue, queue.call("now") - timedelta(hours=1))

    assert sum(deleted) == 2
    assert ids(queue) == [new]
    assert {old, older} & set(ids(queue)) == set()


def test_with_a_topic_only_its_rows_are_deleted(queue: Queue) -> None:
    die_ago(queue, "2 hours", "a")
    kept = die_ago(queue, "2 hours", "b")

    assert sum(purge(queue, queue.call("now"), "a")) == 1
    assert ids(queue) == [kept]


def test_each_call_is_bounded_by_pages(queue: Queue) -> None:
    for _ in range(20):
        die(queue, error="x" * 1500)

    deleted = purge(queue, queue.call("now"), pages=1)

    assert sum(deleted) == 20
    assert max(deleted) <= 5


def test_it_continues_with_the_next_day_if_its_own_was_dropped_in_the_meantime(queue: Queue) -> None:
    die(queue)

    row = queue.row("SELECT * FROM messages.purge_archive(clock_timestamp(), NULL, 'message_archive_20200101:7')")

    assert (row.deleted, ids(queue)) == (1, [])
    assert row.place == "message_archive_default:0"
    assert queue.row("SELECT * FROM messages.purge_archive(now(), NULL, %s)", [row.place]) == (0, None)


def test_a_future_time_is_refused(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="a purge needs a time that is over"):
        purge(queue, queue.call("now") + timedelta(hours=1))


@pytest.mark.parametrize(
    "place", ["", "message", "pg_class:0", "message_archive_default:-1", "message_archive_default"]
)
def test_a_position_that_no_call_returned_is_refused(queue: Queue, place: str) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="place of a purge is"):
        queue.row("SELECT * FROM messages.purge_archive(now(), NULL, %s)", [place])


@pytest.mark.parametrize("pages", [0, None])
def test_an_invalid_number_of_pages_is_refused(queue: Queue, pages: Any) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="pages of a purge are"):
        queue.row("SELECT * FROM messages.purge_archive(now(), NULL, NULL, %s)", [pages])


def test_rows_that_an_export_has_not_read_are_not_deleted_either(queue: Queue) -> None:
    read, unread = die_ago(queue, "1 day"), die_ago(queue, "1 day")
    export(queue, upto=read)

    assert sum(purge(queue, queue.call("now"))) == 1
    assert ids(queue) == [unread]
