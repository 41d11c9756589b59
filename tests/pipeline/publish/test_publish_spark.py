"""Publishing through Spark: tasks that fail and are repeated, jobs that run twice, streams that are restarted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_pgrouse.publish.job import job_result, rejected
from tests.server.postgres import Database
from tests.sql.queue import Queue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 200


@pytest.fixture
def messages(spark: SparkSession) -> DataFrame:
    """Rows of two topics in two partitions."""
    return spark.range(0, ROWS, 1, 2).selectExpr(
        "concat('t', id % 2) AS topic", "concat('{\"id\": ', id, '}') AS payload"
    )


def write(rows: DataFrame, database: Database, **options: str) -> None:
    rows.write.format("pgrouse").options(dsn=database.dsn, **options).mode("append").save()


def ids(queue: Queue) -> list[int]:
    return [row.id for row in queue.rows("SELECT (payload ->> 'id')::int AS id FROM messages.message ORDER BY 1")]


def test_a_task_that_fails_after_staging_is_repeated_and_each_row_is_published_once(
    messages: DataFrame, database: Database, queue: Queue, tmp_path: Path
) -> None:
    mark = tmp_path / "failed"

    def fail_once(batches: Iterator[Any]) -> Iterator[Any]:
        last = None
        for last in batches:
            yield last
        # All of the partition was read, and copied into the stage.
        if last is not None and '{"id": 0}' in last.column("payload").to_pylist() and not mark.exists():
            mark.touch()
            raise OSError("the executor is lost")

    write(messages.mapInArrow(fail_once, messages.schema), database, job="j")

    assert mark.exists()
    assert ids(queue) == list(range(ROWS))
    assert queue.rows("SELECT FROM messages.publish_stage") == []


def test_all_rows_become_visible_at_once_and_a_second_run_publishes_none(
    messages: DataFrame, database: Database, queue: Queue
) -> None:
    seen: set[int] = set()
    done = threading.Event()

    def watch() -> None:
        with database.connect() as conn:
            while not done.is_set():
                seen.add(conn.execute("SELECT count(*) FROM messages.message").fetchone()[0])  # type: ignore[index]

    watcher = threading.Thread(target=watch)
    watcher.start()
    write(messages, database, job="j")
    write(messages, database, job="j")
    done.set()
    watcher.join()

    assert seen <= {0, ROWS}
    assert ids(queue) == list(range(ROWS))


def test_rows_of_all_types_are_published_and_the_rejected_ones_are_a_table(
    spark: SparkSession, database: Database, queue: Queue
) -> None:
    rows = spark.range(0, 3, 1, 1).selectExpr(
        "CASE id WHEN 1 THEN 'no topic' ELSE 'a' END AS topic",
        "named_struct('price', 1.10, 'tags', array('x'), 'n', CAST(NULL AS INT)) AS payload",
        "map('h', 'v') AS headers",
        "7L AS key",
        "INTERVAL '1' DAY AS delay",
        "current_timestamp() + INTERVAL '2' DAY AS expires_at",
    )

    write(rows, database, job="j")

    (message,) = queue.rows(
        "SELECT payload::text, headers, key, available_at - created_at AS wait FROM messages.message"
    )
    assert message.payload == '{"n": null, "tags": ["x"], "price": 1.10}'
    assert (message.headers, message.key, round(message.wait.total_seconds())) == ({"h": "v"}, "7", 86_400)
    reasons = [row["reason"] for row in rejected(spark, "j", database.dsn).orderBy("nth").collect()]
    assert reasons[0].startswith("topic is no topic name")
    assert reasons[1] == 'key "7" of topic a is in use'
    assert job_result(database.dsn, "j").rejected == 2  # type: ignore[union-attr]


def test_an_invalid_job_is_reported_before_any_task_runs(messages: DataFrame, database: Database) -> None:
    with pytest.raises(Exception, match="no column pay of a message: did you mean payload"):
        write(messages.withColumnRenamed("payload", "pay"), database)
    with pytest.raises(Exception, match="cannot be overwritten"):
        messages.write.format("pgrouse").options(dsn=database.dsn).mode("overwrite").save()


def test_a_stream_stopped_before_spark_recorded_its_batch_publishes_it_once(
    messages: DataFrame, spark: SparkSession, database: Database, queue: Queue, tmp_path: Path
) -> None:
    files, checkpoint = str(tmp_path / "files"), tmp_path / "checkpoint"
    messages.write.parquet(files)

    def run() -> None:
        stream = spark.readStream.schema(messages.schema).parquet(files)
        sink = stream.writeStream.format("pgrouse").options(dsn=database.dsn, checkpointLocation=str(checkpoint))
        sink.trigger(availableNow=True).start().awaitTermination()

    run()
    # As if it had been killed between the commit of the batch and Spark's record of it.
    for note in (checkpoint / "commits").glob("*0*"):
        note.unlink()
    more = "concat('{\"id\": ', 1000 + CAST(get_json_object(payload, '$.id') AS INT), '}') AS payload"
    messages.selectExpr("topic", more).write.mode("append").parquet(files)
    run()

    assert ids(queue) == [*range(ROWS), *range(1000, 1000 + ROWS)]
    assert [row.job.rpartition("/")[2] for row in queue.rows("SELECT job FROM messages.publish_job ORDER BY 1")] == [
        "0",
        "1",
    ]
