"""messages.purge_archive_pages: deletes rows of some pages of one partition."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.deaths import die
from tests.sql.exports import export
from tests.sql.queue import Queue


def partition(queue: Queue) -> str:
    name: str = queue.value("SELECT name FROM messages.archive_days() WHERE pages > 0")
    return name


@pytest.fixture(autouse=True)
def _fresh(queue: Queue) -> None:
    queue.conn.execute("TRUNCATE messages.message_archive")


def purged(queue: Queue, first: int, end: int, topic: str | None, before: str = "1 day") -> int:
    did: int = queue.value(
        "SELECT messages.purge_archive_pages(%s, %s, %s, %s, now() + %s::interval)",
        [partition(queue), first, end, topic, before],
    )
    return did


@pytest.mark.parametrize(("topic", "left"), [(None, []), ("a", ["b", "own"]), ("*", ["own"])])
def test_it_deletes_rows_of_one_topic_or_of_topics_without_a_retention_or_all(
    queue: Queue, topic: str | None, left: list[str]
) -> None:
    queue.policy("own", retention="1 day")
    queue.policy("b", max_attempts=1)
    for each in ("a", "b", "own"):
        die(queue, each)

    assert purged(queue, 0, 1, topic) == 3 - len(left)
    assert [row.topic for row in queue.rows("SELECT topic FROM messages.message_archive ORDER BY topic")] == left


def test_rows_that_ended_later_stay(queue: Queue) -> None:
    die(queue)

    assert purged(queue, 0, 1, None, before="-1 hour") == 0


def test_other_pages_stay(queue: Queue) -> None:
    filler: Any = "x" * 1500
    died = [die(queue, error=filler) for _ in range(20)]

    did = purged(queue, 1, 2, None)

    assert 0 < did < len(died)
    pages = "SELECT DISTINCT (ctid::text::point)[0]::int AS page FROM messages.message_archive ORDER BY 1"
    assert [row.page for row in queue.rows(pages)][:2] == [0, 2]


def test_rows_that_an_export_has_not_read_stay(queue: Queue) -> None:
    read, unread = die(queue), die(queue)
    export(queue, upto=read)

    assert purged(queue, 0, 1, None) == 1
    assert [row.id for row in queue.rows("SELECT id FROM messages.message_archive")] == [unread]
