"""messages.begin_request: a request is executed once, however often it is sent, also at the same time."""

from __future__ import annotations

import threading

import pytest
from psycopg import errors

from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

BEGIN = "SELECT * FROM messages.begin_request('shop', 'k', %s)"


def begin(queue: Queue, digest: bytes = b"1") -> list[tuple[int, str]]:
    return [(row.status, row.answer) for row in queue.rows(BEGIN, [digest])]


def test_the_first_call_executes_it_and_the_second_gets_its_answer(queue: Queue) -> None:
    assert begin(queue) == []
    queue.call("end_request", "shop", "k", 201, '{"id": 1}')

    assert begin(queue) == [(201, '{"id": 1}')]


def test_each_caller_has_separate_keys(queue: Queue) -> None:
    begin(queue)

    assert queue.rows("SELECT * FROM messages.begin_request('other', 'k', '1')") == []


def test_another_request_with_the_same_key_is_an_error(queue: Queue) -> None:
    begin(queue)

    with pytest.raises(errors.InvalidParameterValue, match="came with another request before"):
        begin(queue, b"2")


def test_of_two_concurrent_calls_the_second_waits_and_executes_it_if_the_first_fails(
    queue: Queue, database: Database
) -> None:
    with database.connect() as first:
        first.execute("BEGIN")
        first.execute(BEGIN, [b"1"])
        found: list[list[tuple[int, str]]] = []
        other = threading.Thread(target=lambda: found.append(begin(Queue(database.connect()))))
        other.start()
        eventually(lambda: queue.value("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0)
        first.execute("ROLLBACK")
        other.join(60)

    assert found == [[]]
