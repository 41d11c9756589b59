"""Purging rows of the archive, by topic and by age."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg import errors

from tests.sql.deaths import copy_of, die, die_ago
from tests.sql.exports import export
from tests.sql.queue import Queue

# messages.purge: deletes rows that no dropped day removes, in small batches.


@pytest.fixture
def queue(own_queue: Queue) -> Queue:
    """A database of its own: without pages of other tests."""
    return own_queue


def topics(queue: Queue) -> list[str]:
    return [row.topic for row in queue.rows("SELECT topic FROM messages.message_archive ORDER BY topic")]


def purge_until_idle(queue: Queue, pages: int = 1000) -> list[int]:
    """Call it until it does nothing, and return the result of each call."""
    did = [queue.call("purge", pages)]
    while did[-1]:
        did.append(queue.call("purge", pages))
    return did


def test_a_topic_with_a_shorter_retention_loses_its_rows_once_their_day_is_too_old(queue: Queue) -> None:
    queue.policy("short", retention="2 days")
    die(queue, "short")
    die(queue, "kept")

    queue.later("2 days")
    assert (queue.call("purge"), topics(queue)) == (0, ["kept", "short"])
    queue.later("1 day")
    assert (queue.call("purge"), topics(queue)) == (1, ["kept"])


def test_if_one_topic_keeps_for_longer_the_others_lose_their_rows_by_the_default(queue: Queue) -> None:
    queue.policy("long", retention="100 days")
    queue.policy("middle", retention="60 days")
    for topic in ("long", "middle", "plain"):
        die(queue, topic)

    queue.later("32 days")
    queue.call("purge")
    assert topics(queue) == ["long", "middle"]
    queue.later("30 days")
    queue.call("purge")
    assert topics(queue) == ["long"]


def test_with_one_retention_for_all_topics_it_does_nothing(queue: Queue) -> None:
    queue.publish()
    queue.settle("complete", queue.claim())
    queue.later("32 days")

    assert queue.call("purge") == 0
    assert queue.rows("SELECT * FROM messages.purge_mark") == []


def test_a_call_is_bounded_and_the_next_continues_where_it_stopped(queue: Queue) -> None:
    queue.policy("short", retention="1 day")
    for _ in range(20):
        die(queue, "short", error="x" * 1500)
        die(queue, "kept", error="x" * 1500)
    queue.later("3 days")

    did = [queue.call("purge", 2) for _ in range(8)]

    assert sum(did) == 20
    assert max(did) <= 6
    assert set(topics(queue)) == {"kept"}


def test_a_purged_day_is_not_read_again(queue: Queue) -> None:
    queue.policy("short", retention="1 day")
    die(queue, "short")
    queue.later("3 days")
    queue.call("purge")
    die(queue, "short")
    queue.conn.execute("UPDATE messages.message_archive SET archived_at = now()")

    (mark,) = queue.rows("SELECT * FROM messages.purge_mark")
    assert (mark.topic, mark.done) == ("short", True)
    assert queue.call("purge") == 0


def test_the_position_of_a_day_is_deleted_with_its_partition(queue: Queue) -> None:
    queue.policy("short", retention="1 day")
    die(queue, "short")
    queue.later("3 days")
    queue.call("purge")

    queue.later("60 days")
    queue.call("maintain_partitions", 0)

    assert queue.rows("SELECT * FROM messages.purge_mark") == []


def test_rows_of_past_days_in_the_default_partition_are_deleted_when_they_are_too_old_and_not_earlier(
    queue: Queue,
) -> None:
    queue.policy("short", retention="2 days")
    for topic in ("short", "plain"):
        die(queue, topic)
    queue.later("0")
    queue.conn.execute("UPDATE messages.message_archive SET archived_at = messages.now() - interval '3 days'")
    assert {
        row.day for row in queue.rows("SELECT day FROM messages.archive_days() WHERE pages > 0 AND day IS NULL")
    } == {None}

    purge_until_idle(queue)
    assert topics(queue) == ["plain"]
    queue.later("26 days")
    purge_until_idle(queue)
    assert topics(queue) == ["plain"]
    queue.later("2 days")
    purge_until_idle(queue)
    assert topics(queue) == []


def test_it_prunes_alerts_and_the_log_of_redrives_too(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    died = die(queue)
    queue.rows("SELECT * FROM messages.redrive(%s)", [[died]])
    queue.conn.execute("TRUNCATE messages.message_archive")

    queue.later("33 days")

    assert queue.call("purge") >= 2
    assert queue.rows("SELECT 1 FROM messages.alert UNION ALL SELECT 1 FROM messages.redrive_log") == []


@pytest.mark.parametrize("pages", [0, -1, None, 1_000_001])
def test_an_invalid_number_of_pages_is_refused(queue: Queue, pages: Any) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="pages of a purge are"):
        queue.call("purge", pages)


def test_a_copy_in_the_dlq_outlives_the_archive_row_of_its_original(queue: Queue) -> None:
    queue.policy(dead_letter=True, retention="1 day")
    died = die(queue)

    queue.later("3 days")
    queue.call("purge")

    assert queue.archived(died) is None
    assert copy_of(queue, died).topic == "t.dlq"


def test_a_day_that_an_export_has_not_read_is_purged_once_it_has(queue: Queue) -> None:
    queue.policy("short", retention="1 day")
    read, _ = die(queue, "short"), die(queue, "short")
    export(queue, upto=read)
    queue.later("3 days")

    assert purge_until_idle(queue) == [0]
    assert topics(queue) == ["short", "short"]

    queue.call("delete_export", "e")
    assert purge_until_idle(queue)[0] == 2


def test_in_the_default_partition_only_rows_that_an_export_has_not_read_stay(queue: Queue) -> None:
    read, unread = die(queue), die(queue)
    export(queue, upto=read)
    queue.conn.execute("UPDATE messages.message_archive SET archived_at = archived_at - interval '60 days'")

    assert purge_until_idle(queue)[0] == 1
    assert (queue.archived(read), queue.archived(unread) is None) == (None, False)


# messages.purge_archive: an operator deletes rows of the archive, in short transactions.


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


def test_a_call_for_more_than_1000_pages_leaves_no_row(queue: Queue) -> None:
    died = die(queue, error="x" * 700)
    (today,) = queue.rows("SELECT name FROM messages.archive_days() WHERE pages > 0")
    # A row on each page.
    queue.conn.execute(f"ALTER TABLE messages.{today.name} SET (fillfactor = 10)".encode())
    queue.conn.execute(
        "INSERT INTO messages.message_archive "
        "SELECT (jsonb_populate_record(a, jsonb_build_object('id', 1000000 + n))).* "
        "FROM messages.message_archive AS a, generate_series(1, 1100) AS n WHERE a.id = %s",
        [died],
    )

    assert purge(queue, queue.call("now"), pages=5000)[0] == 1101


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
def test_purge_archive_an_invalid_number_of_pages_is_refused(queue: Queue, pages: Any) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="pages of a purge are"):
        queue.row("SELECT * FROM messages.purge_archive(now(), NULL, NULL, %s)", [pages])


def test_rows_that_an_export_has_not_read_are_not_deleted_either(queue: Queue) -> None:
    read, unread = die_ago(queue, "1 day"), die_ago(queue, "1 day")
    export(queue, upto=read)

    assert sum(purge(queue, queue.call("now"))) == 1
    assert ids(queue) == [unread]
