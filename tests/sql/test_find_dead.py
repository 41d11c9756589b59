"""messages.find_dead: dead messages by what they have in common, page by page."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors

from tests.sql.deaths import die, die_ago
from tests.sql.queue import Queue


def found(queue: Queue, **filters: Any) -> list[int]:
    named = ", ".join(f"p_{name} => %({name})s" for name in filters)
    return [row.id for row in queue.rows(f"SELECT * FROM messages.find_dead({named})", filters)]


def test_all_dead_messages_are_found_the_oldest_first_whatever_their_topics(queue: Queue) -> None:
    new, old, middle = die(queue, "a"), die_ago(queue, "2 hours", "b"), die_ago(queue, "1 hour", "a")
    queue.publish()
    queue.settle("complete", queue.claim())

    assert found(queue) == [old, middle, new]


def test_each_filter_narrows(queue: Queue) -> None:
    wanted = die(queue, "a", "disk 7 is full")
    die(queue, "b", "disk 8 is full", settle="reject")

    for filters in (
        {"topic": "a"},
        {"result": "failed"},
        {"fingerprint": queue.archived(wanted).error_fingerprint, "topic": "a"},
        {"error": "DISK 7"},
    ):
        assert found(queue, **filters) == [wanted], filters
    assert found(queue, topic="none") == found(queue, fingerprint="0" * 16) == found(queue, error="%") == []


def test_since_is_inclusive_and_until_exclusive(queue: Queue) -> None:
    old, new = die_ago(queue, "2 hours"), die(queue)
    at = queue.archived(old).archived_at

    assert found(queue, since=at) == [old, new]
    assert found(queue, until=at) == []
    assert found(queue, until=queue.archived(new).archived_at) == [old]


def test_pages_follow_each_other_without_a_gap_also_among_messages_with_the_same_time(queue: Queue) -> None:
    queue.publish_many(3, "a")
    queue.publish_many(4, "b")
    claimed = queue.claim("a", "b")
    queue.settle("fail", claimed, ["boom"] * 7)

    first = found(queue, limit=3)
    second = found(queue, limit=3, after=first[-1])
    third = found(queue, limit=3, after=second[-1])

    assert first + second + third == sorted(c.id for c in claimed)


def test_redriven_messages_are_found_only_on_request(queue: Queue) -> None:
    died = die(queue)
    queue.rows("SELECT * FROM messages.redrive(%s)", [[died]])

    assert (found(queue), found(queue, redriven=True)) == ([], [died])


def test_a_page_of_a_topic_reads_that_page_and_not_all_dead_messages(own_queue: Queue) -> None:
    own_queue.publish_many(5000)
    own_queue.settle("fail", own_queue.claim(limit=5000), ["boom"] * 5000)
    own_queue.conn.execute("ANALYZE messages.message_archive")

    assert own_queue.buffers("SELECT * FROM messages.find_dead('t', p_limit => 10)") < 300


def test_a_page_after_a_message_that_left_the_archive_is_refused(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="message 4711 of the page before is not in the archive"):
        found(queue, after=4711)
