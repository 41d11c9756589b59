"""The claim stream: Spark as a worker. First as plain Python, called as Spark calls it; then through Spark."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from pgrouse.errors import ConfigError
from pyspark_pgrouse.claim import claim_client
from pyspark_pgrouse.claim import heartbeat as claim_heartbeat
from pyspark_pgrouse.claim.claim_client import ConsumerTaken
from pyspark_pgrouse.claim.in_flight import MessagesInFlight
from pyspark_pgrouse.claim.offset import ClaimOffset
from pyspark_pgrouse.claim.query_end import QueryEnd
from tests.pipeline.claiming import Stream, streaming
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RESULTS = "SELECT result, count(*) FROM messages.message_archive GROUP BY result"
LOCKED = "SELECT count(*) FROM messages.message WHERE claim_id IS NOT NULL"


@pytest.fixture
def stream(database: Database) -> Iterator[Stream]:
    with streaming(database) as stream:
        yield stream


def results(queue: Queue) -> dict[str, int]:
    return dict(queue.conn.execute(RESULTS).fetchall())


def locked(queue: Queue) -> int:
    return int(queue.value(LOCKED))


def ids(rows: list[Any]) -> list[int]:
    return [row["id"] for row in rows]


# A batch is a claim, and is acknowledged when the next one is requested


def test_a_batch_is_locked_for_the_consumer(database: Database, queue: Queue) -> None:
    published = queue.publish_many(3)

    with streaming(database, consumer="loader") as stream:
        batch = stream.next()

        assert ids(batch) == published
        assert {queue.message(id_).locked_by for id_ in published} == {"loader"}
        assert {row["attempt"] for row in batch} == {1}
        assert [row["payload"] for row in batch] == ["1", "2", "3"]


def test_a_batch_is_acknowledged_when_the_next_one_is_requested(stream: Stream, queue: Queue) -> None:
    queue.publish_many(3)
    stream.next()
    assert results(queue) == {}

    assert stream.next() == []
    assert results(queue) == {"success": 3}
    assert queue.ids() == []


def test_a_commit_acknowledges_nothing(stream: Stream, queue: Queue) -> None:
    queue.publish()
    stream.next()

    stream.reader.commit(stream.offset)

    assert results(queue) == {}


def test_an_offset_is_unchanged_without_messages(stream: Stream, queue: Queue) -> None:
    queue.publish()
    stream.next()
    before = stream.offset

    assert stream.next() == []
    assert stream.next() == []
    assert stream.offset == before


def test_a_large_batch_takes_several_claims(stream: Stream, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_client, "CLAIM_ROWS", 10)
    queue.publish_many(35)

    assert len(stream.next(rows=25)) == 25
    assert len(ClaimOffset.from_offset(stream.offset).claims) == 3
    assert len(stream.next(rows=25)) == 10


def test_a_batch_ends_with_the_message_that_reaches_its_bytes(database: Database, queue: Queue) -> None:
    queue.publish_many(5, payload={"text": "x" * 1000})

    with streaming(database, maxBytesPerBatch="2000") as stream:
        assert [len(stream.next()), len(stream.next()), len(stream.next())] == [2, 2, 1]


def test_topics_alternate_from_batch_to_batch(database: Database, queue: Queue) -> None:
    queue.publish_many(4, "a")
    queue.publish_many(1, "b")

    with streaming(database, topics="a,b") as stream:
        batches = [sorted(row["topic"] for row in stream.next(rows=2)) for _ in range(3)]

    assert batches == [["a", "a"], ["a", "b"], ["a"]]


# Limits are enforced by the queue itself


def test_a_limit_of_the_topic_limits_every_batch_and_leaves_no_lock(stream: Stream, queue: Queue) -> None:
    queue.policy(max_concurrency=2)
    queue.publish_many(5)

    assert [len(stream.next()) for _ in range(4)] == [2, 2, 1, 0]


def test_an_ordered_channel_gives_one_message_a_batch(stream: Stream, queue: Queue) -> None:
    queue.policy(ordered=True)
    published = queue.publish_many(3, channel="c")

    assert [ids(stream.next()) for _ in range(3)] == [[each] for each in published]


def test_a_paused_topic_gives_nothing(stream: Stream, queue: Queue) -> None:
    queue.publish()
    queue.call("pause", "t")

    assert stream.next() == []


# A restart


def test_a_restart_reads_the_same_batch_while_its_locks_are_valid(database: Database, queue: Queue) -> None:
    queue.publish_many(5)
    crashed = Stream(database.dsn, consumer="loader")
    batch = crashed.next(rows=3)
    crashed.crash()

    with streaming(database, consumer="loader") as restarted:
        restarted.resume(crashed)

        assert restarted.read() == batch
        assert len(restarted.next()) == 2
        assert results(queue) == {"success": 3}


def test_messages_claimed_by_others_leave_a_batch_that_is_read_again(database: Database, queue: Queue) -> None:
    queue.policy(max_attempts=5)
    published = queue.publish_many(3)
    crashed = Stream(database.dsn)
    crashed.next()
    crashed.crash()
    _steal(queue, published[0])

    with streaming(database) as restarted:
        restarted.resume(crashed)

        assert ids(restarted.read()) == published[1:]
        restarted.next()
    assert results(queue) == {"success": 2}
    assert queue.message(published[0]).locked_by == "thief"


def test_a_restart_after_a_completed_batch_acknowledges_it(database: Database, queue: Queue) -> None:
    queue.publish_many(3)
    crashed = Stream(database.dsn)
    crashed.next()
    crashed.crash()

    with streaming(database) as restarted:
        restarted.resume(crashed)
        assert restarted.next() == []

    assert results(queue) == {"success": 3}


def test_a_lost_lock_is_excluded_from_the_acknowledgement(stream: Stream, queue: Queue) -> None:
    queue.policy(max_attempts=5)
    published = queue.publish_many(3)
    stream.next()
    _steal(queue, published[1])

    stream.next()

    assert results(queue) == {"success": 2}
    assert queue.message(published[1]).locked_by == "thief"


def test_messages_that_a_sink_settled_are_unchanged(stream: Stream, queue: Queue) -> None:
    queue.publish_many(2)
    first, _ = stream.next()
    queue.call("reject", [first["id"]], [first["claim_id"]], ["bad"])

    stream.next()

    assert results(queue) == {"success": 1, "rejected": 1}


# Locks and the registry


def test_locks_are_extended_while_a_batch_runs(
    database: Database, queue: Queue, eventually: Callable[..., Any]
) -> None:
    (published,) = queue.publish_many(1)
    with streaming(database, lockDuration="1s") as stream:
        stream.next()
        first = queue.message(published).lock_expires_at

        eventually(lambda: queue.message(published).lock_expires_at > first)


def test_a_message_beyond_its_timeout_is_not_extended() -> None:
    now = [0.0]
    in_flight = MessagesInFlight(lambda: now[0])
    in_flight.add([(1, 7, 3.0, None), (2, 7, 3.0, 0.5)])
    assert in_flight.due() == []

    now[0] = 1.0

    assert in_flight.due() == [(1, 7)]
    assert len(in_flight) == 2


def test_the_option_lock_overrides_the_topic(database: Database, queue: Queue) -> None:
    (published,) = queue.publish_many(1)
    with streaming(database, lockDuration="1h") as stream:
        stream.next()
        message = queue.message(published)

    assert (message.lock_expires_at - message.locked_at).total_seconds() == 3600


def test_the_worker_is_in_the_registry_while_the_stream_runs(database: Database, queue: Queue) -> None:
    with streaming(database, consumer="loader") as stream:
        stream.next()
        (worker,) = queue.rows("SELECT * FROM messages.worker")

    assert (worker.name, worker.pid, worker.topics) == ("loader", os.getpid(), ["t"])
    assert queue.rows("SELECT FROM messages.worker") == []


def test_a_second_query_of_the_same_consumer_is_refused(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_client, "NAME_TIMEOUT_S", 0.05)
    with streaming(database, consumer="loader") as first:
        first.next()

        with pytest.raises(ConsumerTaken, match=f"consumer loader works already in process {os.getpid()}"):
            Stream(database.dsn, consumer="loader").next()


def test_the_name_is_free_again_when_the_stream_has_ended(database: Database) -> None:
    for _ in range(2):
        with streaming(database, consumer="loader") as stream:
            stream.next()


# The end


def test_a_stopped_stream_releases_its_batch(database: Database, queue: Queue) -> None:
    (published,) = queue.publish_many(1)
    with streaming(database) as stream:
        stream.next()

    message = queue.message(published)
    assert (message.claim_id, message.attempts, message.runs) == (None, 0, 1)


def test_a_stream_whose_spark_ended_keeps_its_locks_for_the_restart(database: Database, queue: Queue) -> None:
    class Crash(QueryEnd):
        def is_orderly(self) -> bool:
            return False

    queue.publish()
    with streaming(database) as stream:
        stream.next()
        stream.reader._query_end = Crash()

    assert locked(queue) == 1


def test_a_stream_without_a_restart_releases_its_batch_after_spark_ended(database: Database, queue: Queue) -> None:
    class Crash(QueryEnd):
        def is_orderly(self) -> bool:
            return False

    published = queue.publish()
    with streaming(database, releaseOnCrash="true") as stream:
        stream.next()
        stream.reader._query_end = Crash()

    message = queue.message(published)
    assert (message.claim_id, message.attempts, message.runs) == (None, 0, 1)


def test_available_now_processes_as_many_as_were_ready_at_the_start(stream: Stream, queue: Queue) -> None:
    queue.publish_many(3)
    queue.publish_many(2, channel="c")
    queue.publish(wait="1 hour")
    stream.reader.prepareForTriggerAvailableNow()
    queue.publish_many(10)

    assert [len(stream.next(rows=3)) for _ in range(3)] == [3, 2, 0]


# The server


def test_a_server_that_restarts_is_awaited(private_server: Postgres) -> None:
    with private_server.new_database(template=private_server.migrated) as database:
        queue = Queue(database.connect())
        queue.publish_many(4)
        stream = Stream(database.dsn, consumer="loader", lockDuration="5m")
        batch = stream.next(rows=2)
        private_server.place.stop()
        private_server.place.start()

        assert stream.read() == batch
        assert len(stream.next()) == 2
        stream.reader.stop()

        queue = Queue(database.connect())
        assert results(queue) == {"success": 2}
        assert locked(queue) == 0


def test_messages_claimed_on_a_broken_connection_are_released(database: Database, queue: Queue) -> None:
    """The answer to a claim is lost: the claim is committed, and the client does not know of it."""
    queue.publish_many(2)
    with streaming(database, consumer="loader") as stream:
        stream.next(rows=1)
        queue.claim(worker="loader", limit=1)
        queue.conn.execute(
            "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity AS a"
            " WHERE a.application_name = 'pgrouse-spark' AND a.datname = current_database()"
        )

        assert len(stream.next()) == 1
        assert results(queue) == {"success": 1}


# Errors are reported at once


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"topics": ""}, "topics"),
        ({"lockDuration": "100ms"}, "option lockDuration must be between 1s and 7d"),
        ({"lockDuration": "8d"}, "option lockDuration must be between 1s and 7d"),
    ],
)
def test_invalid_options_are_refused(given: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        Stream("", **given)


@pytest.mark.parametrize("offset", [{"v": 2, "claims": "1"}, {"v": 1, "claims": "x"}, {"v": 1, "sys": "7", "id": 1}])
def test_an_offset_of_another_source_is_refused(offset: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="another mode or a later version"):
        ClaimOffset.from_offset(offset)


# Through Spark


def claimed(spark: SparkSession, database: Database, **given: Any) -> DataFrame:
    options = {"mode": "claim", "dsn": database.dsn, "topics": "t", "numPartitions": 2, **given}
    return spark.readStream.format("pgrouse").options(**options).load()


@pytest.mark.spark
def test_spark_processes_everything_and_acknowledges_the_last_batch(
    spark: SparkSession, database: Database, queue: Queue, tmp_path: Path
) -> None:
    published = queue.publish_many(250)
    batches: list[list[int]] = []

    def keep(batch: DataFrame, _: int) -> None:
        batches.append(sorted(row.id for row in batch.select("id").collect()))

    query = claimed(spark, database, maxRowsPerBatch=100).writeStream.foreachBatch(keep)
    query.trigger(availableNow=True).option("checkpointLocation", str(tmp_path)).start().awaitTermination()

    assert [len(batch) for batch in batches] == [100, 100, 50]
    assert sorted(id_ for batch in batches for id_ in batch) == published
    assert results(queue) == {"success": 250}


@pytest.mark.spark
def test_a_crash_in_a_batch_replays_it_and_every_message_ends_once(
    spark: SparkSession, database: Database, queue: Queue, tmp_path: Path
) -> None:
    queue.publish_many(250)
    batches: list[tuple[int, list[int]]] = []
    crash = [True]

    def work(batch: DataFrame, number: int) -> None:
        batches.append((number, sorted(row.id for row in batch.select("id").collect())))
        if number == 1 and crash.pop():
            # As if the machine had failed: the reader's process cannot release anything.
            os.kill(queue.value("SELECT pid FROM messages.worker"), signal.SIGKILL)
            raise RuntimeError("crash")

    def run() -> None:
        read = claimed(spark, database, maxRowsPerBatch=100, consumer="loader", lockDuration="5m")
        query = read.writeStream.foreachBatch(work).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path)).start().awaitTermination()

    with pytest.raises(StreamingQueryException):
        run()
    crash.append(False)
    run()

    assert [(number, len(batch)) for number, batch in batches] == [(0, 100), (1, 100), (1, 100), (2, 50)]
    assert batches[1] == batches[2]
    assert queue.value("SELECT count(DISTINCT id) FROM messages.message_archive WHERE result = 'success'") == 250


@pytest.mark.spark
def test_a_stopped_query_leaves_no_locked_message(
    spark: SparkSession, database: Database, queue: Queue, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    queue.publish_many(10)
    read = claimed(spark, database, maxRowsPerBatch=5)
    stopped: list[Any] = []

    def stop(batch: DataFrame, _: int) -> None:
        batch.count()
        if not stopped:
            stopped.append(locked(queue))
        raise RuntimeError("no more")

    query = read.writeStream.foreachBatch(stop).option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException):
        query.awaitTermination()

    assert stopped == [5]
    eventually(lambda: locked(queue) == 0)
    assert len(queue.ids()) == 10
    eventually(lambda: _registered(queue) == [])


def test_a_worker_that_has_left_is_not_registered_by_a_late_report(database: Database, queue: Queue) -> None:
    with streaming(database, consumer="loader") as stream:
        stream.next()
        heartbeat = stream.reader.worker._heartbeat
        heartbeat.stop()
        queue.conn.execute("DELETE FROM messages.worker")

        heartbeat._reported_at = -claim_heartbeat.STATUS_INTERVAL_S
        heartbeat.beat()

        assert _registered(queue) == []


def _registered(queue: Queue) -> list[Any]:
    return queue.rows("SELECT name, host, pid, started_at, seen_at FROM messages.worker")


def _steal(queue: Queue, message_id: int) -> None:
    """Let the lock of one message expire, and another worker claim it."""
    queue.conn.execute(
        "UPDATE messages.message SET lock_expires_at = now() - interval '1 s' WHERE id = %s", [message_id]
    )
    queue.value("SELECT messages.expire_locks()")
    queue.conn.execute("UPDATE messages.message SET available_at = now() - interval '1 h' WHERE id = %s", [message_id])
    (stolen,) = queue.claim(worker="thief")
    assert stolen.id == message_id
