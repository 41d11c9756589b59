"""messages.purge: deletes rows that no dropped day removes, in small batches."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors

from tests.sql.deaths import copy_of, die
from tests.sql.exports import export
from tests.sql.queue import Queue


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
