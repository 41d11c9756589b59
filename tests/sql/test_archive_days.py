"""messages.archive_days: the partitions of the archive."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest

from tests.sql.deaths import die
from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server


def test_it_lists_every_day_and_the_default_partition_with_their_sizes(queue: Queue) -> None:
    queue.conn.execute("TRUNCATE messages.message_archive")
    die(queue)

    days = {row.day: row for row in queue.rows("SELECT * FROM messages.archive_days()")}

    today = queue.call("now").astimezone(UTC).date()
    assert set(days) == {None, *(today + timedelta(days=n) for n in range(8))}
    assert days[None].name == "message_archive_default"
    assert days[today].name == f"message_archive_{today:%Y%m%d}"
    assert (days[today].pages, days[None].pages) == (1, 0)
