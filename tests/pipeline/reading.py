"""For the tests of reading: fill the archive, make readers as Spark makes them, and read all their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from pyspark.sql.types import (
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_pgrouse import schema
from pyspark_pgrouse.options import Options
from pyspark_pgrouse.read import position
from tests.server.deadline import eventually
from tests.server.postgres import Database

# No word in it that Spark itself recognizes as a secret.
PASSWORD = "xyzzy4711plugh"
TYPES = {
    "BIGINT": LongType(),
    "DOUBLE": DoubleType(),
    "INT": IntegerType(),
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "TIMESTAMP": TimestampType(),
    "STRUCT<order_id BIGINT, total DOUBLE>": StructType(
        [StructField("order_id", LongType()), StructField("total", DoubleType())]
    ),
}
ARCHIVE = """
    INSERT INTO messages.message_archive
      (id, topic, priority, payload, body, created_at, available_at, attempts, result, error, archived_at, archive_xid)
    SELECT
      n, %(topic)s, 5, CASE WHEN %(body)s::bytea IS NULL THEN coalesce(%(payload)s::jsonb, to_jsonb(n)) END, %(body)s,
      now(), now(), 1, %(result)s, CASE WHEN %(result)s <> 'success' THEN 'ValueError' END,
      coalesce(%(at)s::timestamptz, now()), coalesce(%(xid)s::xid8, pg_current_xact_id())
    FROM unnest(%(ids)s::bigint[]) AS n
"""


def archive(
    conn: psycopg.Connection[Any],
    ids: Sequence[int],
    topic: str = "t",
    result: str = "success",
    payload: str | None = None,
    body: bytes | None = None,
    at: str | None = None,
    xid: str | None = None,
) -> None:
    """Archive messages with these ids in one statement."""
    values = {"ids": list(ids), "topic": topic, "result": result, "payload": payload, "body": body, "at": at}
    values["xid"] = xid
    conn.execute(ARCHIVE, values)


def settled(conn: psycopg.Connection[Any]) -> None:
    """Wait until the watermark has passed all archived rows.

    A transaction of another session (an ANALYZE) may hold it for a moment.
    """
    newest = "SELECT coalesce(max(a.archive_xid::text::bigint), 0) FROM messages.message_archive AS a"
    eventually(lambda: int(position.watermark(conn)) > conn.execute(newest).fetchone()[0])  # type: ignore[index]


def spark_schema(options: Options, *names: str) -> StructType:
    """Return the Spark schema, of all columns or of these."""
    known = {column.name: StructField(column.name, TYPES[column.spark]) for column in schema.columns(options)}
    return StructType([known[name] for name in names or known])


def rows(reader: Any, slices: Sequence[Any]) -> list[dict[str, Any]]:
    """Return all rows of all partitions."""
    return [row for part in slices for batch in reader.read(part) for row in batch.to_pylist()]


def ids(reader: Any, slices: Sequence[Any]) -> list[int]:
    """Return the ids of all rows of all partitions, in their order."""
    return [row["id"] for row in rows(reader, slices)]


@contextmanager
def login(database: Database, of: str = "") -> Iterator[str]:
    """Create a role, with the rights of that one, and return its connection string, with PASSWORD in it."""
    admin = database.connect()
    admin.execute(f"CREATE ROLE spark_test LOGIN PASSWORD '{PASSWORD}' {of and f'IN ROLE {of}'}".encode())
    try:
        yield database.server.dsn(database.name, "spark_test", password=PASSWORD)
    finally:
        admin.execute("DROP ROLE spark_test")
