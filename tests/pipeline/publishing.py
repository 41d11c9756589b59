"""Batches as Spark passes them, jobs, and their results, for the tests of publishing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DayTimeIntervalType,
    DoubleType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_pgrouse.options import Operation, Options
from pyspark_pgrouse.publish.batch import PublishWriter
from pyspark_pgrouse.publish.job import JobResult, rejected_rows
from tests.server.postgres import Database

TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "double": DoubleType(),
    "timestamp": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
    "interval": DayTimeIntervalType(0, 3),
    "map": MapType(StringType(), StringType()),
    "struct": StructType([StructField("n", IntegerType())]),
}
PLAIN = {"topic": "string", "payload": "string"}


def schema(columns: dict[str, str]) -> StructType:
    """Return the schema of a DataFrame with these columns."""
    return StructType([StructField(name, TYPES[type_]) for name, type_ in columns.items()])


def batch(**columns: Any) -> pa.RecordBatch:
    """Return rows; a column is an array, or a list of strings."""
    made = {n: v if isinstance(v, pa.Array) else pa.array(v, pa.string()) for n, v in columns.items()}
    return pa.record_batch(made)


def rows(*payloads: str | None, topic: str = "t") -> pa.RecordBatch:
    """Return rows with these payloads."""
    return batch(topic=[topic] * len(payloads), payload=list(payloads))


def writer(database: Database, columns: dict[str, str] | None = None, **options: Any) -> PublishWriter:
    """Return the writer that Spark would make."""
    given = {name: str(value) for name, value in {"dsn": database.dsn, **options}.items()}
    return PublishWriter(Options.parse(given, Operation.WRITE), schema(columns or PLAIN), overwrite=False)


def publish(database: Database, *batches: pa.RecordBatch, **options: Any) -> JobResult:
    """Publish batches by one task, and return their results."""
    columns = dict.fromkeys(batches[0].schema.names, "string")
    made = writer(database, columns | {n: "binary" for n in columns if n == "body"}, **{"job": str(uuid4()), **options})
    made.commit([made.write(iter(batches))])
    return made.outcome


def reasons(database: Database, job: str) -> list[str]:
    """Return why rows of a job were rejected."""
    return [reason for _, reason, _ in rejected_rows(database.dsn, job)]


def then(batches: Iterable[pa.RecordBatch], call: Any) -> Iterator[pa.RecordBatch]:
    """Yield batches, and call a function when the last of them has been processed."""
    yield from batches
    call()
