"""messages.list_exports: which exports the retention waits for."""

from __future__ import annotations

from datetime import timedelta

from tests.sql.deaths import die
from tests.sql.exports import export, from_elsewhere
from tests.sql.queue import Queue, Row

HELD = "SELECT * FROM messages.list_exports()"


def end_of_its_day(queue: Queue, message_id: int) -> Row:
    return queue.value(
        "SELECT (date_trunc('day', archived_at AT TIME ZONE 'UTC') + interval '1 day') AT TIME ZONE 'UTC' "
        "FROM messages.message_archive WHERE id = %s",
        [message_id],
    )


def test_without_an_export_the_list_is_empty(queue: Queue) -> None:
    die(queue)

    assert queue.rows(HELD) == []


def test_an_export_that_has_read_everything_holds_nothing(queue: Queue) -> None:
    export(queue, upto=die(queue))
    queue.later("100 days")

    (row,) = queue.rows(HELD)
    assert (row.name, row.lake, row.oldest_at, row.held_since) == ("e", "/lake", None, None)


def test_unread_rows_are_not_held_before_their_retention_is_over(queue: Queue) -> None:
    first, second = die(queue), die(queue)
    export(queue, upto=first)

    (row,) = queue.rows(HELD)

    assert (row.oldest_at, row.held_since) == (queue.archived(second).archived_at, None)


def test_after_the_retention_rows_are_held_since_then(queue: Queue) -> None:
    first, second = die(queue), die(queue)
    export(queue, upto=first)
    queue.later("32 days")

    (row,) = queue.rows(HELD)

    assert row.held_since == end_of_its_day(queue, second) + timedelta(days=30)


def test_the_shortest_retention_of_a_topic_is_the_first_to_wait(queue: Queue) -> None:
    queue.policy("short", retention="1 day")
    died = die(queue)
    export(queue)
    queue.later("3 days")

    (row,) = queue.rows(HELD)

    assert row.held_since == end_of_its_day(queue, died) + timedelta(days=1)


def test_an_export_of_another_cluster_holds_everything(queue: Queue) -> None:
    died = die(queue)
    export(queue, upto=died)
    from_elsewhere(queue)

    (row,) = queue.rows(HELD)

    assert row.oldest_at == queue.archived(died).archived_at
