"""messages.open_export: an export begins to hold the archive."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.sql.exports import OPEN
from tests.sql.queue import Queue


def test_it_begins_before_the_first_row(queue: Queue) -> None:
    opened = queue.row("SELECT * FROM messages.open_export('e', 's3a://lake', '1-2-3')")

    assert (opened.lake, opened.lake_id, str(opened.xid), opened.id) == ("s3a://lake", "1-2-3", "0", 0)
    assert opened.system_identifier == queue.value("SELECT system_identifier::text FROM pg_control_system()")


def test_it_begins_where_a_lake_already_is(queue: Queue) -> None:
    opened = queue.row(OPEN, ["e", "/lake", "1-2-3", "17", 4])

    assert (str(opened.xid), opened.id) == ("17", 4)


def test_one_that_is_open_stays_as_it_is(queue: Queue) -> None:
    queue.row(OPEN, ["e", "/lake", "1-2-3", "17", 4])

    again = queue.row(OPEN, ["e", "/other", "4-5-6", "99", 9])

    assert (again.lake, again.lake_id, str(again.xid), again.id) == ("/lake", "1-2-3", "17", 4)


@pytest.mark.parametrize("name", [None, "", " ", "-e", "e" * 201])
def test_a_name_that_cannot_be_is_refused(queue: Queue, name: str | None) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="the name of an export is"):
        queue.row(OPEN, [name, "/lake", "1-2-3", "0", 0])
