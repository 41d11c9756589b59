"""Reads the waiting messages with `spark.read`, without taking any from the queue."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_pgrouse import connection, schema
from pyspark_pgrouse.read import slices
from pyspark_pgrouse.read.scope import Scope, Write
from pyspark_pgrouse.read.slices import Slice, SliceReader

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_pgrouse.options import Options

# Ready messages are those that a claim considers now: not locked, and due. (A paused topic or a limit may still hold
# them back.)
READY = "a.claim_id IS NULL AND a.available_at <= now() AND (a.expires_at IS NULL OR a.expires_at > now())"
NEEDED = ("id", "claim_id", "available_at", "expires_at")
MESSAGES = "messages.message AS a"
# Rough bounds are enough: they only divide the work.
BOUNDS = """
    SELECT t.id
    FROM (
      SELECT a.id, row_number() OVER (ORDER BY a.id) AS place, count(*) OVER () AS total
      FROM messages.message AS a
      WHERE {condition}
    ) AS t
    WHERE t.place %% greatest(ceil(t.total::numeric / %(parts)s)::bigint, 1) = 0 AND t.place < t.total
    ORDER BY t.place
"""


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
        connection.check(conn, "message", [*schema.sources(self._columns), *scope.columns(), *NEEDED])
        bounds = self._bounds(conn, f"{READY} AND {scope.sql()}")
        ranges = zip([None, *bounds], [*bounds, None], strict=True)
        return [Slice.of(partial(self._query, scope, each)) for each in ranges]

    def _query(self, scope: Scope, bounds: tuple[int | None, int | None], write: Write) -> str:
        condition = f"{READY} AND {scope.sql(write)} AND {_between(*bounds, write)}"
        return slices.query(MESSAGES, self._columns, condition, self._options, write)

    def _bounds(self, conn: psycopg.Connection[Any], chosen: str) -> list[int | None]:
        if self._options.partitions == 1 or self._options.limit or self._options.group_by:
            return []
        query = BOUNDS.format(condition=chosen.replace("%", "%%"))
        return [id_ for (id_,) in conn.execute(query, {"parts": self._options.partitions})]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one slice, on an executor."""
        return self._rows.read(partition)


def _between(first: int | None, last: int | None, write: Write) -> str:
    parts = [f"a.id > {write(first, 'bigint')}"] if first is not None else []
    parts += [f"a.id <= {write(last, 'bigint')}"] if last is not None else []
    return " AND ".join(parts) or "TRUE"
