"""messages.open_predecessors: what there is to wait for, and what there is not."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.queue import Queue, Row


def look(queue: Queue, *ids: int | None) -> list[Row]:
    return [tuple(row) for row in queue.rows("SELECT * FROM messages.open_predecessors(%s::bigint[])", [list(ids)])]


def test_what_lives_and_what_died_stand_there_and_what_succeeded_does_not(queue: Queue) -> None:
    done, dead, live = queue.publish("done"), queue.publish("dead"), queue.publish("live")
    queue.settle("complete", queue.claim("done"))
    queue.settle("fail", queue.claim("dead"), ["boom"])

    assert look(queue, live, dead, done, live) == [(dead, "failed"), (live, None)]


@pytest.mark.parametrize("message_id", [987654321, 0, -1, None])
def test_one_that_never_was_is_an_error_that_says_so(queue: Queue, message_id: int | None) -> None:
    with pytest.raises(psycopg.Error, match="never published") as caught:
        look(queue, queue.publish(), message_id)

    assert caught.value.sqlstate == "PGR08"


def test_one_of_which_nothing_is_kept_is_an_error_that_says_so(queue: Queue) -> None:
    queue.policy(archive_success="none")
    published = queue.publish()
    queue.settle("complete", queue.claim())

    with pytest.raises(psycopg.Error, match=f"no message {published} .* neither live nor in the archive"):
        look(queue, published)


def test_one_that_another_transaction_has_not_committed_is_not_there(queue: Queue, other: Queue) -> None:
    with other.conn.transaction():
        published = other.publish()
        with pytest.raises(psycopg.Error, match="its publish is not committed"):
            look(queue, published)


def test_more_than_a_thousand_are_refused(queue: Queue) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="after has 1001 messages"):
        look(queue, *range(1, 1002))
