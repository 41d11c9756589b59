"""The fields of payloads, from a topic's payload_schema or from a sample."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from pgrouse.errors import ConfigError
from pyspark_pgrouse.options import Options
from pyspark_pgrouse.read.archive_batch import ArchiveBatch
from pyspark_pgrouse.read.field_type import of_schema
from pyspark_pgrouse.read.payload_fields import infer, payload_fields
from tests.pipeline.reading import archive, login
from tests.server.postgres import Database
from tests.sql.queue import Queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER = {
    "type": "object",
    "required": ["id"],
    "properties": {
        # In the order of jsonb: the short names first.
        "id": {"type": "integer"},
        "paid": {"type": "boolean"},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "total": {"type": ["number", "null"]},
    },
    "$defs": {"line": {"type": "object", "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}}}},
}
ORDER_DDL = (
    "`id` BIGINT, `paid` BOOLEAN, `tags` MAP<STRING, STRING>, `lines` ARRAY<STRUCT<`sku` STRING, "
    "`count` BIGINT>>, `total` DOUBLE"
)


@pytest.mark.parametrize(
    ("schema", "ddl"),
    [
        ({"type": "string", "format": "date-time"}, "STRING"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "BIGINT"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "DOUBLE"),
        ({"type": ["integer", "string"]}, "STRING"),
        ({"enum": ["a", "b", None]}, "STRING"),
        ({"const": 7}, "BIGINT"),
        ({"properties": {"a": True, "b": {}, "c": {"not": {}}}}, "STRUCT<`a` STRING, `b` STRING, `c` STRING>"),
        (
            {"allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"type": "number"}}}]},
            "STRUCT<`a` BIGINT, `b` DOUBLE>",
        ),
        ({"type": "array"}, "ARRAY<STRING>"),
        ({"type": "object"}, "STRING"),
        (
            {"type": "object", "properties": {"a`b": {"type": "integer"}, "": {"type": "integer"}}},
            "STRUCT<`a``b` BIGINT>",
        ),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}, "BIGINT"),
        ({"$ref": "#/$defs/gone"}, "STRING"),
        ({"$ref": "https://example.org/schema"}, "STRING"),
        ({"$ref": "#"}, "STRING"),
        (True, "STRING"),
    ],
    ids=str,
)
def test_a_json_schema_becomes_a_type(schema: Any, ddl: str) -> None:
    assert of_schema(schema).ddl() == ddl


def chain(last: int, width: int) -> dict[str, Any]:
    """Return a schema whose every definition refers to the next one in as many fields.

    It is a type of width ** last fields.
    """
    defs = {
        f"d{n}": {"type": "object", "properties": {f"f{i}": {"$ref": f"#/$defs/d{n + 1}"} for i in range(width)}}
        for n in range(last)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{last}": {"type": "integer"}}}


@pytest.mark.parametrize(
    "schema",
    [
        chain(9, 50),
        {"type": "object", "properties": {f"f{n}": {"type": "integer"} for n in range(20_000)}},
        {"type": "object", "properties": {"self": {"$ref": "#"}}},
        {"anyOf": [{"$ref": "#/anyOf/1"}, {"$ref": "#/anyOf/0"}]},
        {"type": 3, "properties": 3, "items": 3, "enum": 3, "anyOf": 3},
        {"properties": {"a": {"items": [{"type": "integer"}]}}},
    ],
    ids=["wide chain", "wide", "self", "each other", "nonsense", "tuple"],
)
def test_a_hostile_schema_takes_little_and_gives_a_small_type(schema: Any) -> None:
    began = time.process_time()

    found = of_schema(schema).ddl()

    assert len(found) < 20_000
    assert time.process_time() - began < 20  # of the chain it would be 50 ** 9 fields


def test_a_sample_gives_the_type_that_its_payloads_have_in_common() -> None:
    payloads = [
        '{"a": 1, "b": null, "c": [1]}',
        '{"a": 1.5, "c": [], "d": {"x": true}}',
        '{"b": "t", "d": {"y": 2}}',
        "[1]",
        "3",
    ]

    found = infer(payloads).fields_ddl()

    assert found == "`a` DOUBLE, `b` STRING, `c` ARRAY<BIGINT>, `d` STRUCT<`x` BOOLEAN, `y` BIGINT>"


@pytest.mark.parametrize(
    ("payloads", "ddl"),
    [
        (['{"a": 1}', '{"a": "x"}'], "`a` STRING"),
        (['{"a": 1}', '{"a": {"b": 1}}'], "`a` STRING"),
        (['{"a": 9223372036854775808}'], "`a` STRING"),
        (['{"a": 1' + "0" * 5000 + "}", '{"b": 1}'], "`b` BIGINT"),
        (['{"a": ' + "[" * 5000 + "]" * 5000 + "}", '{"b": 1}'], "`b` BIGINT"),
        ([json.dumps({"m": {str(n): n for n in range(1000)}}), '{"b": 1}'], "`m` STRING, `b` BIGINT"),
        (["[]", "null"], None),
    ],
    ids=["text", "nested", "large", "digits", "deep", "map", "no object"],
)
def test_what_payloads_do_not_have_in_common_is_text(payloads: list[str], ddl: str | None) -> None:
    assert infer(payloads).fields_ddl() == ddl


def test_the_fields_of_a_topic_are_those_of_its_payload_schema(database: Database, queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.topic (topic, payload_schema) VALUES ('order', %s)", [json.dumps(ORDER)])

    assert payload_fields(database.dsn, "order") == ORDER_DDL
    with pytest.raises(ConfigError, match="topic other has no payload_schema: set one, or name the fields"):
        payload_fields(database.dsn, "other")


def test_a_topic_without_a_schema_has_that_of_the_defaults(database: Database, queue: Queue) -> None:
    queue.conn.execute("UPDATE messages.topic SET payload_schema = %s WHERE topic = '*'", [json.dumps(ORDER)])
    queue.conn.execute("INSERT INTO messages.topic (topic, payload_schema) VALUES ('free', 'true')")

    assert payload_fields(database.dsn, "any") == ORDER_DDL
    with pytest.raises(ConfigError, match="the payload_schema of topic free is no object with fields"):
        payload_fields(database.dsn, "free")


def test_fields_are_inferred_from_the_newest_messages_of_the_topic_and_mode(database: Database, queue: Queue) -> None:
    archive(queue.conn, [1], topic="a", payload='{"x": 1}')
    archive(queue.conn, [2], topic="a", payload='{"y": 1}', result="failed")
    archive(queue.conn, [3], topic="b", payload='{"z": 1}')
    archive(queue.conn, [4], topic="a", payload=json.dumps({"large": "x" * 100_000}))

    assert payload_fields(database.dsn, "a", "infer") == "`y` BIGINT, `x` BIGINT"
    assert payload_fields(database.dsn, "a", "infer", "dead") == "`y` BIGINT"
    with pytest.raises(ConfigError, match="topic a has no payloads to infer fields from"):
        payload_fields(database.dsn, "a", "infer", "ready")
    queue.publish("a", payload={"x": [True]})
    assert payload_fields(database.dsn, "a", "infer", "ready") == "`x` ARRAY<BOOLEAN>"


def test_a_role_that_may_not_read_payloads_learns_it(own_database: Database) -> None:
    with login(own_database, "messages_analyst") as dsn, pytest.raises(ConfigError, match="may not read payload"):
        payload_fields(dsn, "t", "infer")


def test_a_schema_of_the_users_own_needs_no_look_at_the_topic(database: Database) -> None:
    options = Options.parse({"dsn": database.dsn, "topics": "t", "payload": "schema"})

    payload = StructField("payload", StructType([StructField("a", IntegerType())]))

    ArchiveBatch(options, StructType([payload, StructField("_corrupt_record", StringType())]))


@pytest.mark.spark
def test_spark_reads_the_payload_of_a_topic_into_its_fields(
    spark: SparkSession, database: Database, queue: Queue
) -> None:
    queue.conn.execute("INSERT INTO messages.topic (topic, payload_schema) VALUES ('order', %s)", [json.dumps(ORDER)])
    archive(
        queue.conn, [1], topic="order", payload='{"id": 7, "lines": [{"sku": "a", "count": 2.0}], "tags": {"k": "v"}}'
    )
    archive(queue.conn, [2], topic="order", payload='{"id": "seven"}')
    reader = spark.read.format("pgrouse").options(dsn=database.dsn, topics="order", numPartitions="1")

    rows = reader.option("payload", "schema").load()
    found = rows.selectExpr("payload.id", "payload.lines[0].count", "payload.tags['k']", "_corrupt_record").collect()
    inferred = reader.option("payload", "infer").load()

    assert sorted(found, key=str) == [(7, 2, "v", None), (None, None, None, '{"id": "seven"}')]
    assert inferred.select("payload.*").schema.toDDL().startswith("id STRING,")
