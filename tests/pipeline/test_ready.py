"""Reading waiting messages by `spark.read`."""

from __future__ import annotations

from pyspark_pgrouse.options import Operation, Options
from pyspark_pgrouse.read.ready_batch import ReadyBatch
from tests.pipeline.reading import ids, rows, spark_schema
from tests.server.postgres import Database
from tests.sql.queue import Queue


def ready(database: Database, *names: str, **given: str) -> ReadyBatch:
    """Make a reader as Spark does."""
    options = Options.parse({"dsn": database.dsn, "mode": "ready", **given}, Operation.BATCH)
    return ReadyBatch(options, spark_schema(options, *names))


def test_ready_messages_may_be_claimed_now(database: Database, queue: Queue) -> None:
    waiting = queue.publish("t")
    queue.publish("t", wait="1 hour")
    queue.publish("t", wait="-2 hours", expires_at="2020-01-01 00:00+00")
    queue.publish("locked")
    queue.claim("locked")
    reader = ready(database)

    found = rows(reader, reader.partitions())

    assert [(row["id"], row["topic"], row["payload"]) for row in found] == [(waiting, "t", "1")]
    assert [row.id for row in queue.claim()] == [waiting]


def test_several_tasks_read_every_message_once(database: Database, queue: Queue) -> None:
    published = queue.publish_many(100)
    reader = ready(database, "id", numPartitions="4")

    parts = reader.partitions()

    # By default one, which reads one snapshot.
    assert (len(parts), len(ready(database, "id").partitions())) == (4, 1)
    assert sorted(ids(reader, parts)) == published
