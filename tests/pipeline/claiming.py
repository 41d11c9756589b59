"""Claim streams for tests, as plain Python, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType

from pyspark_pgrouse import schema
from pyspark_pgrouse.claim.stream import ClaimStream
from pyspark_pgrouse.options import Operation, Options
from tests.server.postgres import Database

TYPES: dict[str, DataType] = {
    "BIGINT": LongType(),
    "INT": IntegerType(),
    "STRING": StringType(),
    "BINARY": BinaryType(),
}


class Stream:
    """A claim stream as Spark drives it, one call at a time."""

    def __init__(self, dsn: str, **given: str) -> None:
        mapping = {"mode": "claim", "dsn": dsn, "topics": "t", **given}
        options = Options.parse(mapping, Operation.STREAM)
        # Spark would parse the DDL, but must run for that.
        fields = [StructField(column.name, TYPES[column.spark]) for column in schema.columns(options)]
        self.reader = ClaimStream(options, StructType(fields))
        self.offset = self.reader.initialOffset()
        self.before = self.offset

    def next(self, rows: int = 50_000) -> list[dict[str, Any]]:
        """Report the batch as done, request the next one, and read it."""
        self.before, self.offset = self.offset, self.reader.latestOffset(self.offset, ReadMaxRows(rows))
        return [] if self.offset == self.before else self.read()

    def read(self) -> list[dict[str, Any]]:
        """Read the batch that ends here; after a restart it is read again like this."""
        parts = self.reader.partitions(self.before, self.offset)
        rows = [row for part in parts for batch in self.reader.read(part) for row in batch.to_pylist()]
        return sorted(rows, key=lambda row: row["id"])

    def resume(self, crashed: Stream) -> None:
        """Begin where another stream was."""
        self.before, self.offset = crashed.before, crashed.offset

    def crash(self) -> None:
        """End without releasing anything, as when Spark is killed."""
        self.reader.worker.stop(release=False)


@contextmanager
def streaming(database: Database, **given: str) -> Iterator[Stream]:
    """Open a stream, and end its worker at the end."""
    stream = Stream(database.dsn, **given)
    try:
        yield stream
    finally:
        stream.reader.stop()
