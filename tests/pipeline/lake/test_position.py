"""Positions in the archive: where a batch ends, that this does not change, and in which cluster it is valid."""

from __future__ import annotations

import itertools
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from pgrouse.client.queries.pipeline.row import EVERYTHING, Scope, between
from pgrouse.errors import ConfigError
from pyspark_pgrouse.read import position
from pyspark_pgrouse.read.position import Position
from pyspark_pgrouse.read.slices import split_range
from tests.pipeline.reading import archive, settled
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

MANY = 10**6


@pytest.fixture
def start(queue: Queue) -> Position:
    """Before everything."""
    return Position(position.queue_identifier(queue.conn), "0", 0)


def end(
    queue: Queue, start: Position, limit_rows: int = MANY, limit_bytes: int = 0, scope: Scope = EVERYTHING
) -> Position | None:
    return position.next_end(queue.conn, start, limit_rows, limit_bytes, position.watermark(queue.conn), scope)


def between_ids(conn: psycopg.Connection[Any], start: Position, end: Position) -> list[int]:
    """Return the rows that a reader of this range has."""
    condition = between((start.xid, start.id), (end.xid, end.id))
    query = f"SELECT a.id FROM messages.message_archive AS a WHERE {condition} ORDER BY a.archive_xid, a.id"
    return [id_ for (id_,) in conn.execute(query.encode())]


@pytest.mark.parametrize(
    "offset", [{}, {"v": 2, "queue": "1", "xid": "1", "id": 1}, {"v": 1, "queue": "1", "xid": "1'; --", "id": 1}]
)
def test_an_invalid_offset_is_refused(offset: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="not a position in the archive"):
        Position.from_offset(offset)


def test_transactions_are_ordered_by_number_not_by_digits(queue: Queue, start: Position) -> None:
    archive(queue.conn, [1, 2])
    settled(queue.conn)
    archive(queue.conn, [3], xid="9")

    found = end(queue, start)

    assert found is not None
    assert (found.id, between_ids(queue.conn, start, found)) == (2, [3, 1, 2])


def test_only_rows_in_scope_count_against_the_limits(queue: Queue, start: Position) -> None:
    archive(queue.conn, range(1, 11))
    archive(queue.conn, range(11, 14), topic="rare")
    settled(queue.conn)

    found = end(queue, start, limit_rows=2, scope=Scope(topics=("rare",)))

    assert found is not None
    assert found.id == 12


def test_a_writing_transaction_holds_the_cut_and_its_rows_are_not_lost(
    database: Database, queue: Queue, start: Position
) -> None:
    late, early = database.connect(autocommit=False), database.connect()
    archive(late, [1])
    archive(early, [2])

    by_highest_id = queue.value("SELECT max(id) FROM messages.message_archive")
    by_cut = end(queue, start)
    late.commit()
    settled(queue.conn)
    found = end(queue, start)

    assert by_highest_id == 2  # a reader that continues after 2 never sees 1
    assert by_cut is None
    assert found is not None
    assert between_ids(queue.conn, start, found) == [1, 2]


def test_concurrent_writers_cause_no_lost_and_no_duplicate_rows(
    database: Database, queue: Queue, start: Position
) -> None:
    numbers = itertools.count(1)
    stop = threading.Event()
    writers = [database.connect(autocommit=False) for _ in range(8)]

    def write(conn: psycopg.Connection[Any], chance: random.Random) -> None:
        while not stop.is_set():
            archive(conn, [next(numbers) for _ in range(chance.randint(1, 20))])
            conn.execute("SAVEPOINT s")
            archive(conn, [next(numbers)])
            if chance.random() < 0.3:
                conn.execute("ROLLBACK TO s")
            time.sleep(chance.random() * 0.1)  # transactions that end in another order than they began
            (conn.rollback if chance.random() < 0.2 else conn.commit)()

    ranges: list[tuple[Position, Position, list[int]]] = []
    with ThreadPoolExecutor(8) as threads:
        running = [threads.submit(write, conn, random.Random(seed)) for seed, conn in enumerate(writers)]
        deadline = time.monotonic() + 2
        here = start
        while time.monotonic() < deadline or len(ranges) <= 5 or sum(len(found) for _, _, found in ranges) <= 100:
            here = read_on(queue, here, ranges)
        stop.set()
        for writer in running:
            writer.result()
    settled(queue.conn)
    while (there := read_on(queue, here, ranges)) != here:
        here = there

    read = [id_ for _, _, found in ranges for id_ in found]
    there_are = [row.id for row in queue.rows("SELECT id FROM messages.message_archive ORDER BY id")]
    assert len(there_are) > 100
    assert len(ranges) > 5
    assert sorted(read) == there_are
    assert all(between_ids(queue.conn, first, last) == found for first, last, found in ranges)


def read_on(queue: Queue, here: Position, ranges: list[tuple[Position, Position, list[int]]]) -> Position:
    found = end(queue, here, limit_rows=50)
    if found is None:
        return here
    ranges.append((here, found, between_ids(queue.conn, here, found)))
    return found


def test_a_read_only_transaction_does_not_hold_the_cut(database: Database, queue: Queue) -> None:
    reader = database.connect(autocommit=False)
    reader.execute("SELECT count(*) FROM messages.message_archive")
    before = position.watermark(queue.conn)

    archive(queue.conn, [1])

    assert eventually(lambda: int(position.watermark(queue.conn)) > int(before))


def test_the_partitions_of_a_range_have_every_row_once_and_about_as_many_each(queue: Queue) -> None:
    archive(queue.conn, range(1, 6001))
    archive(queue.conn, range(6001, 9001))
    (first, last) = ("0", 0), (str(2**40), 0)

    ranges = split_range(queue.conn, "TRUE", first, last, 3)

    sizes = [
        len(queue.rows(f"SELECT FROM messages.message_archive AS a WHERE {between(*bounds)}")) for bounds in ranges
    ]
    assert sizes == [3000, 3000, 3000]
