"""messages.is_exported: whether every export has read a partition."""

from __future__ import annotations

from tests.sql.deaths import die
from tests.sql.exports import export
from tests.sql.queue import Queue


def partition(queue: Queue, message_id: int) -> str:
    where = "SELECT tableoid::regclass::text FROM messages.message_archive WHERE id = %s"
    name: str = queue.value(where, [message_id])
    return name.removeprefix("messages.")


def test_without_an_export_every_partition_may_be_dropped(queue: Queue) -> None:
    assert queue.call("is_exported", partition(queue, die(queue))) is True


def test_one_row_after_the_position_keeps_the_partition(queue: Queue) -> None:
    first, second = die(queue), die(queue)
    export(queue, "e", upto=first)

    assert queue.call("is_exported", partition(queue, second)) is False


def test_a_partition_that_every_export_has_read_may_be_dropped(queue: Queue) -> None:
    first, second = die(queue), die(queue)
    export(queue, "a", upto=second)
    assert queue.call("is_exported", partition(queue, first)) is True

    export(queue, "b", upto=first)
    assert queue.call("is_exported", partition(queue, first)) is False


def test_an_empty_partition_may_be_dropped(queue: Queue) -> None:
    export(queue)

    assert queue.call("is_exported", "message_archive_default") is True
