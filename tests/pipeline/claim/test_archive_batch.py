"""Reading the archive by `spark.read`."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import datasource as spark_filters

from pgrouse.errors import ConfigError
from pyspark_pgrouse import schema
from pyspark_pgrouse.options import Operation, Options
from pyspark_pgrouse.read import archive_batch as archive_batch_module
from pyspark_pgrouse.read.archive_batch import ArchiveBatch, PushdownArchiveBatch, archive_batch
from pyspark_pgrouse.read.pushdown import PUSHDOWN_WORKER
from tests.pipeline.reading import archive, ids, rows, spark_schema
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BLOCKED = (
    "SELECT pid FROM pg_stat_activity "
    "WHERE wait_event_type = 'Lock' AND datname = current_database() AND pid <> ALL(%s)"
)


def batch(database: Database, *names: str, **given: str) -> ArchiveBatch:
    """Make a reader as Spark does, with all columns or with these."""
    options = Options.parse({"dsn": database.dsn, **given}, Operation.BATCH)
    made = PushdownArchiveBatch if options.pushdown else ArchiveBatch
    return made(options, spark_schema(options, *names))


def test_every_column_has_its_type(database: Database, queue: Queue) -> None:
    archive(queue.conn, [7], payload='{"a": "é"}', result="failed", at="2026-03-01 12:00+00")
    reader = batch(database)

    (row,) = rows(reader, reader.partitions())

    assert (row["id"], row["topic"], row["priority"], row["payload"]) == (7, "t", 5, '{"a": "é"}')
    assert (row["result"], row["error"], row["body"], row["key"]) == ("failed", "ValueError", None, None)
    assert row["archived_at"] == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert row["archive_xid"] == queue.value("SELECT archive_xid::text::bigint FROM messages.message_archive")


def test_a_time_that_spark_cannot_hold_is_null(database: Database, queue: Queue) -> None:
    for id_, moment in enumerate(["infinity", "-infinity", "4713-01-01 BC", "294276-12-31"]):
        archive(queue.conn, [id_])
        queue.conn.execute("UPDATE messages.message_archive SET expires_at = %s WHERE id = %s", [moment, id_])
    reader = batch(database, "id", "expires_at", "created_at")

    found = rows(reader, reader.partitions())

    assert [(row["expires_at"], row["created_at"] is None) for row in found] == [(None, False)] * 4


def test_all_partitions_read_the_snapshot_of_the_planning(database: Database, queue: Queue) -> None:
    begun_before = database.connect(autocommit=False)
    archive(begun_before, [1])
    archive(queue.conn, [2])
    reader = batch(database, "id", numPartitions="2")

    parts = reader.partitions()
    begun_before.commit()
    archive(queue.conn, [3])

    # 2 is visible although an older transaction was still running: a stream has to wait for it, a batch need not.
    assert ids(reader, parts) == [2]


def test_dead_messages_neither_succeeded_nor_were_cancelled(database: Database, queue: Queue) -> None:
    for number, result in enumerate(["success", "rejected", "failed", "lock_expired", "expired", "cancelled"]):
        archive(queue.conn, [number], result=result)
    reader = batch(database, "id", mode="dead")

    assert ids(reader, reader.partitions()) == [1, 2, 3, 4]


def test_topics_and_times_select_rows(database: Database, queue: Queue) -> None:
    archive(queue.conn, [1], topic="a", at="2026-03-01 00:00+00")
    archive(queue.conn, [2], topic="b", at="2026-03-01 00:00+00")
    archive(queue.conn, [3], topic="c", at="2026-03-01 00:00+00")
    archive(queue.conn, [4], topic="a", at="2026-03-02 00:00+00")
    archive(queue.conn, [5], topic="a", at="2026-02-28 23:59+00")
    reader = batch(database, "id", topics="a,b", since="2026-03-01T00:00Z", until="2026-03-02T00:00Z")
    hostile = batch(database, "id", topics="x') OR ('1'='1, 100%s")

    assert sorted(ids(reader, reader.partitions())) == [1, 2]
    assert ids(hostile, hostile.partitions()) == []


def test_a_schema_with_fewer_columns_reads_only_those_in_its_order(database: Database, queue: Queue) -> None:
    archive(queue.conn, [1], topic="a")
    reader = batch(database, "topic", "id")

    (part, *_) = reader.partitions()

    assert "payload" not in part.query
    assert [list(row.items()) for row in rows(reader, [part])] == [[("topic", "a"), ("id", 1)]]


def test_a_schema_with_an_unknown_column_or_another_type_is_refused(database: Database) -> None:
    options = Options.parse({"dsn": database.dsn})
    id_as_text = spark_schema(options, "id", "topic")
    id_as_text["id"].dataType = id_as_text["topic"].dataType
    unknown = spark_schema(options, "id")
    unknown["id"].name = "ident"

    with pytest.raises(ConfigError, match="column id is BIGINT, not STRING"):
        ArchiveBatch(options, id_as_text)
    with pytest.raises(ConfigError, match=r"no column ident in mode archive: Known: id, topic, "):
        ArchiveBatch(options, unknown)


def test_binary_payloads_are_the_bytes_of_the_body_or_of_the_json(database: Database, queue: Queue) -> None:
    archive(queue.conn, [1], body=b"\x00\xff")
    archive(queue.conn, [2], payload='"é"')
    reader = batch(database, "id", "payload", payload="binary")

    found = {row["id"]: row["payload"] for row in rows(reader, reader.partitions())}

    assert found == {1: b"\x00\xff", 2: '"é"'.encode()}


HOSTILE = [
    "null",
    "3",
    "[]",
    '"text"',
    '{"order_id": "1"}',
    '{"order_id": 1.5}',
    '{"order_id": true}',
    '{"order_id": 9223372036854775808}',
    '{"order_id": {"a": [1]}}',
    '{"total": 1' + "0" * 400 + "}",
    '{"order_id": 1' + "0" * 5000 + "}",
    '{"total": ' + "[" * 1500 + "]" * 1500 + "}",
]


def test_a_payload_becomes_columns_and_a_mismatch_is_kept_in_its_own_column(database: Database, queue: Queue) -> None:
    archive(queue.conn, [0], payload='{"order_id": 1, "total": 2, "more": [null, "x"]}')
    archive(queue.conn, [1], payload='{"total": 2.5}')
    for number, payload in enumerate(HOSTILE):
        archive(queue.conn, [100 + number], payload=payload)
    archive(queue.conn, [2], body=b"not JSON")
    reader = batch(database, payload="order_id BIGINT, total DOUBLE")

    found = {row["id"]: row for row in rows(reader, reader.partitions())}

    assert found[0]["payload"] == {"order_id": 1, "total": 2.0}
    assert found[1]["payload"] == {"order_id": None, "total": 2.5}
    assert found[2]["payload"] is found[2]["_corrupt_record"] is None
    for number, payload in enumerate(HOSTILE):
        row = found.pop(100 + number)
        assert row["payload"] is None
        assert row["_corrupt_record"].replace(" ", "") == payload.replace(" ", "")
    assert all(row["_corrupt_record"] is None for row in found.values())
    as_text = batch(database, "id", "payload")
    assert len(rows(as_text, as_text.partitions())) == len(HOSTILE) + 3


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FILTERS: list[tuple[Any, list[int]]] = [
    (spark_filters.EqualTo(("topic",), "a"), [1]),
    (spark_filters.EqualTo(("topic",), "a' OR ''='"), []),
    (spark_filters.In(("result",), ("failed", "expired")), [3]),
    (spark_filters.LessThan(("id",), 3), [1, 2]),
    (spark_filters.GreaterThanOrEqual(("id",), 3), [3]),
    (spark_filters.LessThanOrEqual(("archived_at",), NOON), [1]),
    (spark_filters.GreaterThan(("archive_xid",), 2**40), []),
    (spark_filters.In(("archive_xid",), (2**40, 2**41)), []),
    (spark_filters.In(("archived_at",), (NOON,)), [1]),
    (spark_filters.EqualNullSafe(("topic",), "b"), [2]),
    (spark_filters.Not(spark_filters.EqualTo(("topic",), "a")), [2, 3]),
    # As in Spark, NULL is neither equal nor unequal.
    (spark_filters.Not(spark_filters.EqualTo(("error",), "TypeError")), [3]),
    (spark_filters.Not(spark_filters.In(("id",), (1, 3))), [2]),
    (spark_filters.StringStartsWith(("error",), "Value"), [3]),
    (spark_filters.StringStartsWith(("error",), "V%"), []),
    (spark_filters.StringEndsWith(("error",), "Error"), [3]),
    (spark_filters.StringContains(("error",), "eE"), [3]),
    (spark_filters.StringContains(("error",), "' OR ''='"), []),
    (spark_filters.Not(spark_filters.StringStartsWith(("topic",), "a")), [2, 3]),
    (spark_filters.IsNull(("error",)), [1, 2]),
    (spark_filters.IsNotNull(("error",)), [3]),
]


def test_filters_are_evaluated_by_the_database(database: Database, queue: Queue) -> None:
    archive(queue.conn, [1], topic="a", at="2026-03-01 12:00+00")
    archive(queue.conn, [2], topic="b")
    archive(queue.conn, [3], topic="c", result="failed")

    for filter_, expected in FILTERS:
        reader = batch(database, pushdown="true", numPartitions="1")
        assert isinstance(reader, PushdownArchiveBatch)

        assert list(reader.pushFilters([filter_])) == []
        assert sorted(ids(reader, reader.partitions())) == expected, filter_


def test_filters_that_sql_might_evaluate_differently_are_left_to_spark() -> None:
    filters = [
        spark_filters.LessThan(("topic",), "b"),  # by a collation or by bytes?
        spark_filters.EqualTo(("payload",), "{}"),
        spark_filters.StringStartsWith(("payload",), "{"),
        spark_filters.StringContains(("id",), "1"),
        spark_filters.Not(spark_filters.LessThan(("topic",), "b")),
        spark_filters.Not(spark_filters.EqualTo(("payload",), "{}")),
        spark_filters.EqualTo(("archive_xid",), -1),
        spark_filters.EqualTo(("payload", "order_id"), 3),
        spark_filters.EqualTo(("topic",), "a\0b"),
        spark_filters.EqualTo(("archived_at",), NOON.replace(tzinfo=None)),
        spark_filters.In(("id",), (1, None)),
    ]
    options = Options.parse({"dsn": "", "pushdown": "true"}, Operation.BATCH)

    assert list(PushdownArchiveBatch(options, spark_schema(options)).pushFilters(filters)) == filters


def test_the_slices_of_a_read_have_every_row_once_and_few_texts_whatever_their_values(
    database: Database, queue: Queue
) -> None:
    for first in range(0, 1000, 100):
        archive(queue.conn, range(first, first + 100), topic=f"t{first}")
    reader = batch(database, "id", numPartitions="4")
    assert sorted(ids(reader, reader.partitions())) == list(range(1000))

    texts = {
        part.query
        for topics in ("t0,t100,t200", "t300,t400")
        for part in batch(database, "id", topics=topics, since="2h", numPartitions="8").partitions()
    }

    # These are the first slice, the last one, and those between them.
    assert 1 < len(texts) <= 3
    assert not any(topic in text for topic in ("t0", "t300") for text in texts)


def test_a_limit_is_one_of_rows_and_one_task_reads_them(database: Database, queue: Queue) -> None:
    archive(queue.conn, range(100))
    archive(queue.conn, range(100, 200), topic="other")
    reader = batch(database, "id", "topic", topics="other", limit="7", numPartitions="4")

    parts = reader.partitions()
    found = rows(reader, parts)

    assert (len(parts), len(found), {row["topic"] for row in found}) == (1, 7, {"other"})


def test_a_read_has_no_more_tasks_than_its_values_are_worth(
    database: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_batch_module, "LEAST_VALUES", 400)
    for first in range(0, 1000, 100):
        archive(queue.conn, range(first, first + 100))
    queue.conn.execute("ANALYZE messages.message_archive")

    for columns, tasks in ((("id",), 2), (("id", "topic", "result"), 4), (("payload",), 4)):
        reader = batch(database, *columns, numPartitions="4")
        parts = reader.partitions()

        assert (len(parts), len(rows(reader, parts))) == (tasks, 1000)


def test_groups_are_counted_by_the_database(database: Database, queue: Queue) -> None:
    archive(queue.conn, range(100), topic="a")
    archive(queue.conn, range(100, 150), topic="a", result="failed")
    archive(queue.conn, range(150, 160), topic="b")
    reader = batch(database, groupBy="topic, result", pushdown="true", numPartitions="4")
    assert isinstance(reader, PushdownArchiveBatch)
    left = spark_filters.GreaterThan(("count",), 7)

    not_pushed = list(reader.pushFilters([spark_filters.EqualTo(("topic",), "a"), left]))
    parts = reader.partitions()
    found = sorted(tuple(row.values()) for row in rows(reader, parts))

    assert not_pushed == [left]
    assert (len(parts), found) == (1, [("a", "failed", 50), ("a", "success", 100)])
    counts = batch(database, "count", groupBy="topic")
    assert rows(counts, counts.partitions()) == [{"count": 160}]


def test_a_limit_leaves_the_filters_to_spark_for_they_come_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, PUSHDOWN_WORKER, sys)
    options, limited = Options.parse({}), Options.parse({"limit": "7"})

    made = [archive_batch(each, spark_schema(each, "id")) for each in (options, limited)]

    assert [type(each) for each in made] == [PushdownArchiveBatch, ArchiveBatch]


def test_a_large_read_that_nothing_limits_is_told_once(
    database: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(archive_batch_module, "LARGE", 99)
    archive(queue.conn, range(100))
    queue.conn.execute("ANALYZE messages.message_archive")
    archive_batch_module._warn_once.cache_clear()

    for given in ({"topics": "t"}, {"limit": "5"}, {}, {}):
        batch(database, "id", **given).partitions()
    batch(database).partitions()

    told, of_all_columns = caplog.messages
    assert "reads the whole archive" in told
    assert "spark.sql.python.filterPushdown.enabled=true" in told
    assert of_all_columns.removeprefix(told).endswith("name those it needs by columns")


def test_contents_are_read_only_if_they_are_asked_for() -> None:
    def names(**given: str) -> list[str]:
        return [column.name for column in schema.default_columns(Options.parse(given))]

    contents = {"payload", "body", "headers", "state", "progress", "output"}
    everything = names(columns="*")
    assert contents < set(everything)
    assert names() == [name for name in everything if name not in contents]
    assert set(names(payload="json")) & contents == {"payload", "body"}
    assert set(names(payload="a INT")) & contents == {"payload"}
    assert "_corrupt_record" in names(payload="a INT")
    assert names(columns="topic, id, topic") == ["topic", "id"]
    with pytest.raises(ConfigError, match="no column paylod in mode archive: did you mean payload"):
        names(columns="paylod")


def test_corrupt_payloads_are_counted(database: Database, queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    archive(queue.conn, [1], payload='{"order_id": 1}')
    archive(queue.conn, [2, 3], payload="[]")

    for names in (("payload", "_corrupt_record"), ("payload",)):
        reader = batch(database, *names, payload="order_id BIGINT, total DOUBLE", numPartitions="1")
        rows(reader, reader.partitions())

    kept, lost = caplog.messages
    assert kept == "2 payloads have not the fields that were asked for: they are in _corrupt_record"
    assert lost.startswith("2 payloads")
    assert "lost" in lost


def test_no_filter_reaches_the_database_without_pushdown(database: Database) -> None:
    assert type(batch(database)).pushFilters is spark_filters.DataSourceReader.pushFilters


@pytest.mark.spark
def test_spark_finds_the_format_by_its_name(spark: SparkSession, database: Database, queue: Queue) -> None:
    archive(queue.conn, range(1, 101), payload='{"order_id": 5}', at="2026-03-01 12:00+00")
    archive(queue.conn, [101], payload="[]", result="failed")

    frame = (
        spark.read.format("pgrouse")
        .options(dsn=database.dsn, payload="order_id BIGINT, total DOUBLE", pushdown="true", numPartitions="2")
        .load()
        .where("archived_at = timestamp'2026-03-01 12:00:00Z' and result in ('success', 'x') and id <= 100")
    )

    assert frame.selectExpr("count(*)", "sum(id)", "sum(payload.order_id)").collect() == [(100, 5050, 500)]
    assert "_corrupt_record" in frame.columns


@pytest.mark.spark
def test_a_task_whose_connection_is_killed_is_repeated_without_duplicate_rows(
    spark: SparkSession, database: Database, queue: Queue
) -> None:
    archive(queue.conn, range(100))
    options = {"dsn": database.dsn, "numPartitions": "1"}
    frame = spark.read.format("pgrouse").schema("topic STRING, id BIGINT").options(**options).load()
    barrier = database.connect(autocommit=False)
    barrier.execute("LOCK TABLE messages.message_archive IN ACCESS EXCLUSIVE MODE")  # the planning does not read it

    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(frame.collect)
        first = eventually(lambda: queue.row(BLOCKED, [[0]]), within_s=60)
        queue.value("SELECT pg_terminate_backend(%s)", [first.pid])
        eventually(lambda: queue.row(BLOCKED, [[first.pid]]), within_s=60)
        barrier.rollback()

    assert sorted(reading.result()) == [("t", id_) for id_ in range(100)]
