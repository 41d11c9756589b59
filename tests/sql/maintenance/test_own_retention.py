"""Archived messages with a retention of their own: deleted earlier or kept longer than their topic says."""

from __future__ import annotations

import pytest

from tests.sql.deaths import die
from tests.sql.exports import export
from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server

PARTITION = "SELECT tableoid::regclass::text FROM messages.message_archive WHERE id = %s"


@pytest.fixture
def queue(own_queue: Queue) -> Queue:
    """A database of its own: its days are dropped."""
    return own_queue


def end(queue: Queue, topic: str = "t", **columns: str) -> int:
    published = queue.publish(topic, **columns)
    queue.settle("complete", queue.claim(topic))
    return published


def kept(queue: Queue) -> set[int]:
    return {row.id for row in queue.rows("SELECT id FROM messages.message_archive")}


def tick(queue: Queue) -> None:
    """Do what a tick does to the archive."""
    queue.call("maintain_partitions")
    queue.call("purge")


def test_a_message_with_a_shorter_one_is_deleted_as_soon_as_it_is_over(queue: Queue) -> None:
    short, plain = end(queue, retention="2 hours"), end(queue)
    dead = die(queue, retention="2 hours")

    queue.later("119 minutes")
    assert (queue.call("purge"), kept(queue)) == (0, {short, plain, dead})
    queue.later("2 minutes")
    assert (queue.call("purge"), kept(queue)) == (2, {plain})


def test_a_message_with_a_longer_one_outlives_the_day_that_is_dropped(queue: Queue) -> None:
    long, plain = end(queue, retention="60 days"), end(queue)
    before = queue.archived(long)

    queue.later("32 days")
    tick(queue)

    assert kept(queue) == {long}
    assert queue.archived(long) == before
    assert queue.value(PARTITION, [long]) == "messages.message_archive_default"
    assert plain
    queue.later("27 days")
    tick(queue)
    assert kept(queue) == {long}
    queue.later("2 days")
    tick(queue)
    assert kept(queue) == set()


def test_it_outlives_the_shorter_retention_of_its_topic(queue: Queue) -> None:
    queue.policy("t", retention="2 days")
    long, plain = end(queue, retention="20 days"), end(queue)

    queue.later("4 days")
    tick(queue)
    assert kept(queue) == {long}
    assert plain
    queue.later("17 days")
    tick(queue)
    assert kept(queue) == set()


def test_a_topic_that_keeps_for_longer_does_not_keep_it(queue: Queue) -> None:
    queue.policy("t", retention="100 days")
    short, plain = end(queue, retention="10 days"), end(queue)

    queue.later("11 days")
    tick(queue)

    assert short
    assert kept(queue) == {plain}


def test_a_message_whose_own_is_over_when_its_day_is_dropped_goes_with_it(queue: Queue) -> None:
    end(queue, retention="10 days")

    queue.later("32 days")
    queue.call("maintain_partitions")

    assert kept(queue) == set()


def test_one_that_an_export_has_not_read_stays_until_it_has(queue: Queue) -> None:
    read, unread = end(queue, retention="2 hours"), end(queue, retention="2 hours")
    export(queue, upto=read)

    queue.later("3 hours")
    queue.call("purge")
    assert kept(queue) == {unread}
    queue.call("delete_export", "e")
    queue.call("purge")
    assert kept(queue) == set()


def test_an_operator_purges_them_too(queue: Queue) -> None:
    end(queue, retention="90 days")
    queue.later("1 hour")

    queue.row("SELECT * FROM messages.purge_archive(messages.now() - interval '1 minute')")

    assert kept(queue) == set()


def test_the_doctor_does_not_warn_of_kept_messages_in_the_default_partition(queue: Queue) -> None:
    end(queue, retention="60 days")
    queue.later("32 days")
    queue.call("maintain_partitions")

    def level() -> str:
        found: str = queue.value("SELECT level FROM messages.examine_archive() WHERE code = 'default_partition'")
        return found

    assert level() == "ok"
    queue.conn.execute(
        "INSERT INTO messages.message_archive (id, topic, priority, created_at, available_at, attempts, result, "
        "archived_at) VALUES (0, 't', 5, now(), now(), 1, 'success', now() - interval '40 days')"
    )
    assert level() == "warn"


def test_without_any_a_purge_reads_hardly_anything_for_them(queue: Queue) -> None:
    for _ in range(3):
        queue.publish_many(1000)
        queue.settle("complete", queue.claim(limit=1000))

    assert queue.buffers("SELECT messages.purge_own()") < 150
