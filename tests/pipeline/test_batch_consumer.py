"""The loop of `consume`, with a real database and its own process for locks, but its tasks one by one and without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_pgrouse.claim.batch import BatchResult
from pyspark_pgrouse.claim.batch_consumer import BatchConsumer, ConsumerLimits, OnError
from pyspark_pgrouse.claim.batch_settler import BatchSettler
from pyspark_pgrouse.claim.batch_size import BatchSize
from pyspark_pgrouse.claim.claimed_batch import ClaimedBatch
from pyspark_pgrouse.claim.consumer_locks import ConsumerRegistration
from pyspark_pgrouse.claim.executor_claims import ExecutorClaims
from pyspark_pgrouse.claim.locks_process import LocksProcess
from pyspark_pgrouse.claim.outcome import SettledCounts
from pyspark_pgrouse.claim.share import ConsumerSettings
from tests.pipeline.lakes import one_by_one
from tests.server.postgres import Database
from tests.sql.queue import Queue

CORES = 2
LEFT = "SELECT attempts, runs, claim_id FROM messages.message ORDER BY id"


class Claims(ExecutorClaims):
    """Claims whose batches are their ids."""

    def frame(self, batch: ClaimedBatch) -> Any:
        return SimpleNamespace(ids=[id_ for id_, _ in batch.refs()], sparkSession=SESSION)


SESSION: Any = SimpleNamespace(
    conf={},
    sparkContext=SimpleNamespace(
        defaultParallelism=CORES, _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
    ),
)


@contextmanager
def consumer(
    database: Database, function: Callable[[Any], None], ran: list[BatchResult], rows: int = 1_000, **limits: Any
) -> Iterator[BatchConsumer]:
    with (
        LocksProcess(ConsumerRegistration("c", ("t",), rows, database.dsn)) as locks,
        closing(BatchSettler(database.dsn, "c")) as settler,
    ):
        claims = Claims(SESSION, ConsumerSettings("c", ("t",), database.dsn), settler, run=one_by_one)
        wanted = ConsumerLimits(**{"failures": 1, "interval_s": 0.05, **limits})
        yield BatchConsumer(function, claims, settler, locks, BatchSize(rows), wanted, ran.append)


def test_all_messages_are_processed_in_batches_that_grow(database: Database, queue: Queue) -> None:
    published = queue.publish_many(4_500)
    seen: list[list[int]] = []
    ran: list[BatchResult] = []

    with consumer(database, lambda batch: seen.append(batch.ids), ran, rows=10_000, messages=4_500) as work:
        work.run()

    assert [len(ids) for ids in seen] == [1_000, 2_000, 1_500]
    assert sorted(id_ for ids in seen for id_ in ids) == published
    assert work.settled == SettledCounts({"success": 4_500})
    assert [each.batch for each in ran] == [0, 1, 2]
    assert queue.value("SELECT count(*) FROM messages.message_archive WHERE result = 'success'") == 4_500
    assert queue.rows("SELECT FROM messages.worker") == []


def test_an_ordered_channel_is_worked_to_its_end(database: Database, queue: Queue) -> None:
    queue.policy(ordered=True)
    queue.publish_many(3, channel="a")
    ran: list[BatchResult] = []

    with consumer(database, lambda _: None, ran, messages=3) as work:
        work.run()

    assert [each.settled.total for each in ran] == [1, 1, 1]


def test_a_stop_settles_the_running_batch_and_claims_no_other(database: Database, queue: Queue) -> None:
    queue.policy(max_attempts=2)
    queue.publish_many(3)
    ran: list[BatchResult] = []

    with consumer(database, lambda _: work.stop.set(), ran, rows=2) as work:
        work.run()

    assert [each.settled for each in ran] == [SettledCounts({"success": 2})]
    assert [tuple(row) for row in queue.rows(LEFT)] == [(0, 0, None)]


def test_messages_that_were_claimed_when_the_stop_came_have_not_begun(database: Database, queue: Queue) -> None:
    queue.policy(max_attempts=2)
    queue.publish_many(2)

    with consumer(database, pytest.fail, []) as work:
        claim = work._claims.claim

        def stopped(*given: Any) -> ClaimedBatch:
            work.stop.set()
            return claim(*given)

        work._claims.claim = stopped  # type: ignore[method-assign]
        work.run()

    assert [tuple(row) for row in queue.rows(LEFT)] == [(0, 0, None)] * 2


def test_a_batch_that_is_not_searched_is_released_and_has_failed(database: Database, queue: Queue) -> None:
    queue.policy(max_attempts=2)
    queue.publish_many(3)
    ran: list[BatchResult] = []

    def away(_: Any) -> None:
        raise OSError("the sink is away")

    with consumer(database, away, ran, failures=2, on_error=OnError.RELEASE) as work:
        work.run()

    assert [each.settled for each in ran] == [SettledCounts({"release": 3})] * 2
    assert "the sink is away" in str(ran[0].error)
    assert work.failed_in_a_row == 2
    assert [tuple(row) for row in queue.rows(LEFT)] == [(0, 2, None)] * 3


def test_a_consumer_waits_for_messages_until_it_is_stopped(database: Database, queue: Queue) -> None:
    ran: list[BatchResult] = []

    with consumer(database, lambda _: work.stop.set(), ran) as work:
        wait = work.stop.wait

        def publishes(timeout: float | None = None) -> bool:
            queue.publish()
            return wait(timeout)

        work.stop.wait = publishes  # type: ignore[method-assign]
        work.run()

    assert [each.settled for each in ran] == [SettledCounts({"success": 1})]
