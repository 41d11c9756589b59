"""Reads the waiting messages with `spark.read`, without taking any from the queue."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pgrouse.client.call import run
from pgrouse.client.queries.pipeline.ready_message import ready_bounds
from pgrouse.client.queries.pipeline.row import READY, READY_COLUMNS, Scope, Write, between_ids
from pyspark_pgrouse import schema
from pyspark_pgrouse.connection import connection
from pyspark_pgrouse.read import slices
from pyspark_pgrouse.read.slices import Slice, SliceReader

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_pgrouse.options import Options


class ReadyBatch(DataSourceReader):
    """Reads the messages that are ready.

    One task reads them in one statement, so it sees one moment. With numPartitions above 1 each task sees its own
    moment. A message is never read twice, since the slices are ranges of ids; but a message that was claimed in between
    is missing, and one that became ready in between may be there. (Tasks cannot share a snapshot: the session that
    exports it must stay connected until all have begun, and a reader's driver side ends with the planning.)
    """

    def __init__(self, options: Options, schema_: StructType) -> None:
        self._options = options
        self._columns = schema.chosen(options, schema_)
        self._rows = SliceReader(options.dsn, self._columns, schema_)

    def partitions(self) -> list[InputPartition]:
        """Divide the queue into ranges of ids."""
        return connection.run_with_retry(self._options.dsn, self._plan)

    def _plan(self, conn: psycopg.Connection[Any]) -> list[InputPartition]:
        scope = Scope(topics=self._options.topics)
        connection.check(conn, "message", ["id", *READY_COLUMNS, *schema.sources(self._columns), *scope.columns()])
        bounds = self._bounds(conn, scope)
        ranges = zip([None, *bounds], [*bounds, None], strict=True)
        return [Slice.of(partial(self._query, scope, each)) for each in ranges]

    def _query(self, scope: Scope, bounds: tuple[int | None, int | None], write: Write) -> str:
        condition = f"{READY} AND {scope.sql(write)} AND {between_ids(*bounds, write)}"
        return slices.query("message", self._columns, condition, self._options, write)

    def _bounds(self, conn: psycopg.Connection[Any], scope: Scope) -> list[int]:
        if self._options.partitions == 1 or self._options.limit or self._options.group_by:
            return []
        return run(conn, ready_bounds(scope.sql(), self._options.partitions))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one slice, on an executor."""
        return self._rows.read(partition)
