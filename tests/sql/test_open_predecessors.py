"""messages.open_predecessors: which predecessors a message must wait for."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.queue import Queue, Row


def predecessors(queue: Queue, *ids: int | None) -> list[Row]:
    return [tuple(row) for row in queue.rows("SELECT * FROM messages.open_predecessors(%s::bigint[])", [list(ids)])]


def test_live_and_dead_messages_are_returned_and_successes_are_not(queue: Queue) -> None:
    done, dead, live = queue.publish("done"), queue.publish("dead"), queue.publish("live")
    queue.settle("complete", queue.claim("done"))
    queue.settle("fail", queue.claim("dead"), ["boom"])

    assert predecessors(queue, live, dead, done, live) == [(dead, "failed"), (live, None)]


@pytest.mark.parametrize("message_id", [987654321, 0, -1, None])
def test_an_unknown_id_is_an_error_that_names_it(queue: Queue, message_id: int | None) -> None:
    with pytest.raises(psycopg.Error, match="never published") as caught:
        predecessors(queue, queue.publish(), message_id)

    assert caught.value.sqlstate == "PGR08"


def test_a_message_that_was_not_archived_is_an_error_that_names_it(queue: Queue) -> None:
    queue.policy(archive_success="none")
    published = queue.publish()
    queue.settle("complete", queue.claim())

    with pytest.raises(psycopg.Error, match=f"no message {published} .* neither live nor in the archive"):
        predecessors(queue, published)


def test_an_uncommitted_message_does_not_exist(queue: Queue, other: Queue) -> None:
    with other.conn.transaction():
        published = other.publish()
        with pytest.raises(psycopg.Error, match="its publish is not committed"):
            predecessors(queue, published)


def test_more_than_a_hundred_thousand_are_refused(queue: Queue) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="after has 100001 messages"):
        predecessors(queue, *range(1, 100_002))
