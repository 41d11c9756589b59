"""The loop of `consume`, with a real database and its own process for locks.

Its tasks run one by one and without Spark.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from threading import Timer
from types import SimpleNamespace
from typing import Any

import pytest

from pgrouse.errors import ConfigError
from pyspark_pgrouse.claim import batch_size, claim_client, executor_claims
from pyspark_pgrouse.claim.batch import BatchResult, call_function
from pyspark_pgrouse.claim.batch_consumer import BatchConsumer
from pyspark_pgrouse.claim.batch_settler import BatchSettler
from pyspark_pgrouse.claim.claimed_batch import ClaimedBatch
from pyspark_pgrouse.claim.consumer_options import ConsumerOptions, OnError
from pyspark_pgrouse.claim.executor_claims import ExecutorClaims
from pyspark_pgrouse.claim.locks_process import LocksProcess, LocksProcessEnded
from pyspark_pgrouse.claim.outcome import SettledCounts
from pyspark_pgrouse.claim.signal_flag import SignalFlag
from tests.pipeline.lakes import one_by_one
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue

CORES = 2
LEFT = "SELECT attempts, runs, claim_id FROM messages.message ORDER BY id"


class Claims(ExecutorClaims):
    """Claims whose batches are their ids."""

    def frame(self, batch: ClaimedBatch) -> Any:
        return SimpleNamespace(ids=[id_ for id_, _ in batch.refs()], sparkSession=SESSION)


SESSION: Any = SimpleNamespace(
    conf={},
    sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))),
)


@contextmanager
def consumer(
    database: Database,
    function: Callable[[Any], None],
    ran: list[BatchResult],
    **given: Any,
) -> Iterator[BatchConsumer]:
    options = ConsumerOptions("c", ("t",), database.dsn, **{"max_failed_batches": 1, "interval_s": 0.05, **given})
    with LocksProcess(options) as locks, closing(BatchSettler(database.dsn, "c")) as settler:
        claims = Claims(SESSION, options, settler, run=one_by_one, slots=lambda _: CORES)
        yield BatchConsumer(function, claims, settler, locks, options, ran.append, SignalFlag())


def test_all_messages_are_processed_in_batches_that_grow(
    database: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_size, "FIRST", 100)
    published = queue.publish_many(450)
    seen: list[list[int]] = []
    ran: list[BatchResult] = []

    with consumer(database, lambda batch: seen.append(batch.ids), ran, rows=10_000, available_now=True) as work:
        work.run()

    assert [len(ids) for ids in seen] == [100, 200, 150]
    assert sorted(id_ for ids in seen for id_ in ids) == published
    assert work.settled == SettledCounts({"success": 450})
    assert [each.batch for each in ran] == [0, 1, 2]
    assert queue.value("SELECT count(*) FROM messages.message_archive WHERE result = 'success'") == 450
    assert queue.rows("SELECT FROM messages.worker") == []


@pytest.mark.parametrize("cores", [1, 3])
def test_a_batch_is_claimed_by_a_connection_for_each_core_and_by_two_at_least(
    database: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    monkeypatch.setattr(executor_claims, "LEAST_ROWS", 10)
    published = queue.publish_many(100)
    tasks: list[int] = []

    def run(work: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        tasks.append(len(parts))
        return one_by_one(work, parts)

    with claiming(database) as claims:
        claims._run, claims._slots = run, lambda _: cores
        batch = claims.claim(100)
        settled, following = claims.advance(batch, {}, 100)

    assert [id_ for id_, _ in batch.refs()] == published
    assert len(batch.shares) == max(2, cores)
    assert tasks == [cores, cores]
    assert (settled, len(following)) == (SettledCounts({"success": 100}), 0)


@contextmanager
def claiming(database: Database, *topics: str, max_bytes: int = 0, lock: timedelta | None = None) -> Iterator[Claims]:
    with closing(BatchSettler(database.dsn, "c")) as settler:
        options = ConsumerOptions("c", topics or ("t",), database.dsn, max_bytes=max_bytes, lock=lock)
        yield Claims(SESSION, options, settler, run=one_by_one, slots=lambda _: CORES)


def test_a_large_batch_takes_several_claims(database: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_client, "CLAIM_ROWS", 10)
    queue.publish_many(35)

    with claiming(database) as claims:
        batch = claims.claim(25, shares=1)

    assert (len(batch), len(batch.claims)) == (25, 3)


def test_a_batch_ends_with_the_message_that_reaches_its_bytes(database: Database, queue: Queue) -> None:
    queue.publish_many(5, payload={"text": "x" * 1000})

    with claiming(database, max_bytes=2_000) as claims:
        assert [len(claims.claim(10, shares=1)) for _ in range(3)] == [2, 2, 1]


def test_topics_alternate_from_batch_to_batch(database: Database, queue: Queue) -> None:
    queue.publish_many(4, "a")
    queue.publish_many(1, "b")

    with claiming(database, "a", "b") as claims:
        batches = [claims.claim(2, shares=1).refs() for _ in range(3)]

    topics = dict(queue.conn.execute("SELECT id, topic FROM messages.message").fetchall())
    assert [sorted(topics[id_] for id_, _ in batch) for batch in batches] == [["a", "a"], ["a", "b"], ["a"]]


def test_the_duration_of_locks_overrides_that_of_the_topic(database: Database, queue: Queue) -> None:
    (published,) = queue.publish_many(1)

    with claiming(database, lock=timedelta(hours=1)) as claims:
        batch = claims.claim(1)

    message = queue.message(published)
    assert message.lock_expires_at - message.locked_at == timedelta(hours=1)
    assert batch.lock_duration_s == 3600


@pytest.mark.long
def test_a_server_that_restarts_is_awaited(private_server: Postgres) -> None:
    with private_server.new_database(template=private_server.migrated) as database:
        Queue(database.connect()).publish_many(4)
        with claiming(database, lock=timedelta(minutes=5)) as claims:
            batch = claims.claim(2)
            private_server.place.stop()
            starting = Timer(0.5, private_server.place.start)
            starting.start()
            settled, following = claims.advance(batch, {}, 10)
            starting.join()

    assert (settled, len(following)) == (SettledCounts({"success": 2}), 2)


def test_messages_that_become_ready_later_are_beyond_the_given_number(database: Database, queue: Queue) -> None:
    queue.publish_many(3)
    ran: list[BatchResult] = []

    with consumer(database, lambda _: queue.publish_many(2) and None, ran, rows=2, available_now=True) as work:
        work.run()

    assert [each.settled.total for each in ran] == [2, 1]


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

    with consumer(database, away, ran, max_failed_batches=2, on_error=OnError.RELEASE) as work:
        work.run()

    assert [each.settled for each in ran] == [SettledCounts({"release": 3})] * 2
    assert "the sink is away" in str(ran[0].error)
    assert (work.failed_in_a_row, work.stop.is_set()) == (2, False)
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


def test_an_error_over_a_killed_process_of_spark_says_so() -> None:
    def killed(_: Any) -> None:
        raise RuntimeError("An error occurred while calling o57: Python worker exited unexpectedly (crashed).")

    error = call_function(killed, SimpleNamespace(sparkSession=SESSION))  # type: ignore[arg-type]

    assert "a Python process of Spark's executors has ended (killed? out of memory?)" in str(error)


def test_a_batch_that_lost_all_its_messages_has_failed(database: Database, queue: Queue) -> None:
    (published,) = queue.publish_many(1)
    ran: list[BatchResult] = []

    def cancelled(_: Any) -> None:
        queue.call("cancel", [published])
        raise OSError("the sink is away")

    with consumer(database, cancelled, ran) as work:
        work.run()

    assert [(each.settled, each.has_failed) for each in ran] == [(SettledCounts(lost=1), True)]


@pytest.mark.long
def test_a_failed_batch_is_given_back_after_a_restart_of_the_server(private_server: Postgres) -> None:
    with private_server.new_database(template=private_server.migrated) as database:
        Queue(database.connect()).publish_many(2)

        def restarts(_: Any) -> None:
            private_server.place.stop()
            starting.start()
            raise OSError("the server is away")

        starting = Timer(0.5, private_server.place.start)
        ran: list[BatchResult] = []
        with consumer(database, restarts, ran, on_error=OnError.RELEASE) as work:
            work.run()
        starting.join()

        left = Queue(database.connect()).rows(LEFT)
    assert [each.settled for each in ran] == [SettledCounts({"release": 2})]
    assert [tuple(row) for row in left] == [(0, 1, None)] * 2


def test_a_job_whose_locks_are_not_extended_any_more_gives_back_its_own_messages(
    database: Database, queue: Queue
) -> None:
    queue.policy(max_attempts=2, lock_duration="1h")
    queue.publish_many(4)
    # Another job has the name by now.
    (other,) = queue.claim(worker="c", limit=1)

    def loses_its_locks(_: Any) -> None:
        os.kill(work._locks.pid, signal.SIGKILL)
        work._locks.hang_up()

    with pytest.raises(LocksProcessEnded), consumer(database, loses_its_locks, [], rows=2) as work:
        work.run()

    assert [row.id for row in queue.rows("SELECT id FROM messages.message WHERE claim_id IS NOT NULL")] == [other.id]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"topics": ()}, "topics must be a tuple of names"),
        ({"topics": "t"}, "topics must be a tuple of names"),
        ({"rows": 0}, "rows must be more than 0"),
        ({"max_failed_batches": 0}, "max_failed_batches must be more than 0"),
        ({"interval_s": 0}, "interval must be more than 0"),
        ({"lock": timedelta(milliseconds=1)}, "lock must be between 1s and 7d"),
        ({"lock": timedelta(days=8)}, "lock must be between 1s and 7d"),
    ],
)
def test_invalid_options_are_refused(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        ConsumerOptions(**{"consumer": "c", "topics": ("t",), **given})
