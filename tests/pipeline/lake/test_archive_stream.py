"""Reading the archive by `spark.readStream`."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from pgrouse.database.install.schema import migrate
from pgrouse.errors import ConfigError
from pyspark_pgrouse.options import Operation, Options
from pyspark_pgrouse.read import archive_stream, position
from pyspark_pgrouse.read.archive_stream import ArchiveStream
from tests.pipeline.reading import archive, ids, settled, spark_schema
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MANY = ReadMaxRows(10**6)


def stream(database: Database, *names: str, **given: str) -> ArchiveStream:
    """Make a reader as Spark does for a query."""
    options = Options.parse({"dsn": database.dsn, **given}, Operation.STREAM)
    return ArchiveStream(options, spark_schema(options, *(names or ("id",))))


def read(reader: ArchiveStream, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return ids(reader, reader.partitions(start, end))


def test_a_stream_reads_batch_after_batch_and_then_waits(database: Database, queue: Queue) -> None:
    archive(queue.conn, range(1, 6))
    settled(queue.conn)
    reader = stream(database)

    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(3))
    second = reader.latestOffset(first, ReadMaxRows(3))
    third = reader.latestOffset(second, ReadMaxRows(3))

    assert read(reader, start, first) == [1, 2, 3]
    assert read(reader, first, second) == [4, 5]
    assert third == second


def test_a_batch_read_again_by_another_process_has_the_same_rows(database: Database, queue: Queue) -> None:
    archive(queue.conn, range(1, 6))
    settled(queue.conn)
    reader = stream(database)
    start = reader.initialOffset()
    end = json.loads(json.dumps(reader.latestOffset(start, ReadMaxRows(3))))

    archive(queue.conn, range(6, 9))

    assert read(stream(database), start, end) == read(reader, start, end) == [1, 2, 3]


def test_the_option_limits_a_batch_unless_the_trigger_does(database: Database, queue: Queue) -> None:
    archive(queue.conn, range(1, 6), body=b"x" * 100)
    settled(queue.conn)
    reader = stream(database, maxRowsPerBatch="2", maxBytesPerBatch="10")
    start = reader.initialOffset()

    assert reader.getDefaultReadLimit() == ReadMaxRows(2)
    assert reader.latestOffset(start, ReadMaxRows(2))["id"] == 1
    assert reader.latestOffset(start, ReadMaxBytes(250))["id"] == 2
    assert reader.latestOffset(start, ReadAllAvailable())["id"] == 5


def test_available_now_ends_at_the_rows_that_existed_at_its_start(database: Database, queue: Queue) -> None:
    archive(queue.conn, range(1, 4))
    settled(queue.conn)
    reader = stream(database)
    start = reader.initialOffset()

    reader.prepareForTriggerAvailableNow()
    archive(queue.conn, [4])
    settled(queue.conn)
    end = reader.latestOffset(start, MANY)

    assert read(reader, start, end) == [1, 2, 3]
    assert reader.latestOffset(end, MANY) == end


def test_latest_begins_after_the_settled_rows(database: Database, queue: Queue) -> None:
    archive(queue.conn, [1])
    settled(queue.conn)
    reader = stream(database, startingOffsets="latest")

    start = reader.initialOffset()
    archive(queue.conn, [2])
    settled(queue.conn)

    assert read(reader, start, reader.latestOffset(start, MANY)) == [2]


def test_a_stream_can_begin_at_an_offset_of_another(database: Database, queue: Queue) -> None:
    archive(queue.conn, range(1, 6))
    settled(queue.conn)
    first = stream(database)
    middle = first.latestOffset(first.initialOffset(), ReadMaxRows(3))

    second = stream(database, startingOffsets=json.dumps(middle))

    start = second.initialOffset()
    assert read(second, start, second.latestOffset(start, MANY)) == [4, 5]


def test_a_stream_of_dead_messages_of_a_topic_has_only_those(database: Database, queue: Queue) -> None:
    archive(queue.conn, [1, 2], topic="a")
    archive(queue.conn, [3], topic="a", result="failed")
    archive(queue.conn, [4], topic="b", result="failed")
    settled(queue.conn)
    reader = stream(database, mode="dead", topics="a")

    start = reader.initialOffset()

    assert read(reader, start, reader.latestOffset(start, MANY)) == [3]


def test_skipped_rows_are_not_read_at_every_poll(database: Database, queue: Queue) -> None:
    archive(queue.conn, range(1, 2001), topic="common")
    settled(queue.conn)
    reader = stream(database, topics="rare")
    start = reader.initialOffset()

    assert reader.latestOffset(start, MANY) == start
    archive(queue.conn, [2001], topic="rare")
    settled(queue.conn)
    skipped_to = reader._nothing_until

    assert skipped_to is not None
    assert int(skipped_to.xid) > 0
    assert read(reader, start, reader.latestOffset(start, MANY)) == [2001]


@pytest.mark.long
def test_a_query_survives_a_restart_of_the_server_on_the_driver_and_in_its_tasks(private_server: Postgres) -> None:
    with private_server.admin() as conn:
        migrate(conn)
        archive(conn, [1, 2, 3])
        settled(conn)
    reader = stream(Database(private_server, "postgres"))
    start = reader.initialOffset()

    private_server.place.stop()
    with ThreadPoolExecutor(1) as thread:
        asking = thread.submit(reader.latestOffset, start, MANY)
        private_server.place.start()
        parts = reader.partitions(start, asking.result())
        private_server.place.stop()
        reading = thread.submit(ids, reader, parts)
        private_server.place.start()

    assert reading.result() == [1, 2, 3]


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"queue": "1"}, "of another queue .* an empty checkpoint"),
        ({"xid": str(2**40)}, "restored from a backup.* an empty checkpoint"),
    ],
)
def test_a_checkpoint_of_a_different_or_restored_cluster_is_refused_everywhere(
    database: Database, queue: Queue, changed: dict[str, str], error: str
) -> None:
    reader = stream(database)
    here = reader.initialOffset()
    foreign = here | changed

    with pytest.raises(ConfigError, match=error):
        reader.latestOffset(foreign, MANY)
    with pytest.raises(ConfigError, match=error):
        reader.partitions(here, foreign)
    with pytest.raises(ConfigError, match=error):
        stream(database, startingOffsets=json.dumps(foreign)).initialOffset()


def test_the_progress_shows_the_newest_position(database: Database, queue: Queue) -> None:
    reported = stream(database).reportLatestOffset()

    assert int(reported["xid"]) <= int(position.watermark(queue.conn))
    assert reported["queue"] == position.queue_identifier(queue.conn)


def test_a_transaction_that_holds_the_cut_for_long_is_logged_once(
    database: Database, queue: Queue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_stream, "LAG_WARNING_S", 0.0)
    slow = database.connect(autocommit=False, application_name="slow importer")
    archive(slow, [1])
    reader = stream(database)
    start = reader.initialOffset()

    reader.latestOffset(start, MANY)
    reader.latestOffset(start, MANY)

    assert [record.getMessage().count("slow importer") for record in caplog.records] == [1]
    assert "held for" in caplog.text


def test_a_server_that_is_down_between_two_batches_is_retried(
    database: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(queue.conn, [1])
    settled(queue.conn)
    reader = stream(database)
    start = reader.initialOffset()
    killed = []

    def killing(conn: psycopg.Connection[Any]) -> str:
        if not killed:
            killed.append(queue.value("SELECT pg_terminate_backend(%s)", [conn.info.backend_pid]))
        return original(conn)

    original = position.watermark
    monkeypatch.setattr(position, "watermark", killing)

    assert reader.latestOffset(start, MANY)["id"] == 1
    assert killed == [True]


@pytest.mark.spark
def test_an_invalid_query_reports_the_reason(spark: SparkSession, database: Database) -> None:
    source = spark.readStream.format("pgrouse").options(dsn=database.dsn, mode="ready").load()

    with pytest.raises(Exception, match=r"mode ready is for spark\.read"):
        source.writeStream.format("noop").start().awaitTermination(60)


@pytest.mark.spark
def test_a_query_that_dies_in_a_batch_reads_the_same_rows_again_and_every_row_once_in_the_end(
    spark: SparkSession, database: Database, queue: Queue, tmp_path: Path
) -> None:
    for first in range(0, 250, 10):
        archive(queue.conn, range(first, first + 10))
    settled(queue.conn)
    runs: list[tuple[int, list[int]]] = []

    def run(*, dies_in: int | None) -> None:
        def batch(frame: DataFrame, number: int) -> None:
            runs.append((number, sorted(row.id for row in frame.select("id").collect())))
            if number == dies_in:
                raise RuntimeError("the sink is away")

        source = spark.readStream.format("pgrouse").options(dsn=database.dsn, maxRowsPerBatch="100", numPartitions="1")
        sink = source.load().writeStream.option("checkpointLocation", str(tmp_path)).foreachBatch(batch)
        assert sink.trigger(availableNow=True).start().awaitTermination(60)

    with pytest.raises(Exception, match="the sink is away"):
        run(dies_in=1)
    archive(queue.conn, range(250, 260))
    settled(queue.conn)
    run(dies_in=None)

    assert [number for number, _ in runs] == [0, 1, 1, 2]
    assert runs[1] == runs[2]
    done = dict(runs)
    assert [len(found) for found in done.values()] == [100, 100, 60]
    assert sorted(id_ for found in done.values() for id_ in found) == list(range(260))


@pytest.mark.spark
def test_a_query_with_a_checkpoint_of_another_cluster_fails_with_the_fix(
    spark: SparkSession, database: Database, queue: Queue, tmp_path: Path
) -> None:
    archive(queue.conn, [1])
    settled(queue.conn)
    elsewhere = json.dumps({"v": 1, "queue": "1", "xid": "5", "id": 5})
    source = spark.readStream.format("pgrouse").options(dsn=database.dsn, startingOffsets=elsewhere)
    sink = source.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path))

    with pytest.raises(Exception, match=r"of another queue .1;.*empty checkpoint"):
        sink.trigger(availableNow=True).start().awaitTermination(60)
