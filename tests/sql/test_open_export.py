"""messages.open_export: an export starts to hold the archive."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.sql.exports import OPEN
from tests.sql.queue import Queue


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
