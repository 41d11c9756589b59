"""Reads the archive, or its dead messages, with `spark.readStream`.

Every row is read once, in the order of (archive_xid, id).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pgrouse.client.queries.pipeline.row import Key, Write, between
from pyspark_pgrouse import schema
from pyspark_pgrouse.connection import connection
from pyspark_pgrouse.connection.replica import replay_target
from pyspark_pgrouse.options import EARLIEST, LATEST
from pyspark_pgrouse.read import position, slices
from pyspark_pgrouse.read.archive_batch import NEEDED
from pyspark_pgrouse.read.position import Position
from pyspark_pgrouse.read.slices import Slice, SliceReader, scope_of

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_pgrouse.options import Options

T = TypeVar("T")

log = logging.getLogger("pgrouse.spark")

UNLIMITED = 2**63 - 1
# A transaction that writes for longer than this causes a warning from time to time.
LAG_WARNING_S = 60.0
LAG_WARNING_INTERVAL_S = 300.0


class ArchiveStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what was archived below the watermark, from where it stopped.

    A batch is a range of (archive_xid, id) below the watermark, where nothing changes, so a batch that is read again
    has the same rows. An instance lives in the driver for as long as its query; copies of it read on the executors.
    """

    def __init__(self, options: Options, schema_: StructType) -> None:
        self._options = options
        self._columns = schema.chosen(options, schema_)
        self._rows = SliceReader(options.replica_dsn or options.dsn, self._columns, schema_)
        self._scope = scope_of(options)
        self._target: str | None = None
        self._nothing_until: Position | None = None
        self._warned_at = -LAG_WARNING_INTERVAL_S
        self._was_there = False

    def _query(self, function: Callable[[psycopg.Connection[Any]], T]) -> T:
        # A running query survives a restart of the server; a query that starts reports at once that there is no server.
        answer = connection.run_with_retry(self._options.dsn, function, known=self._was_there)
        self._was_there = True
        return answer

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, here and below
        """Return where a new stream begins. A stream with a checkpoint begins where the checkpoint says."""
        return self._query(self._start).as_offset()

    def _start(self, conn: psycopg.Connection[Any]) -> Position:
        self._check(conn)
        queue = position.queue_identifier(conn)
        match self._options.starting:
            case str(word) if word == EARLIEST:
                return Position(queue, "0", 0)
            case str(word) if word == LATEST:
                return Position(queue, position.watermark(conn), 0)
        given = Position.from_offset(json.loads(self._options.starting))
        position.check_queue(conn, given)
        return given

    def _check(self, conn: psycopg.Connection[Any]) -> None:
        needed = [*schema.sources(self._columns), *self._scope.columns(), *NEEDED]
        sized = ["payload", "body"] if self._options.max_bytes else []
        connection.check(conn, "message_archive", [*needed, *sized])

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Record the current watermark: this run ends there."""
        self._target = self._query(position.watermark)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the size of a batch unless the trigger sets another."""
        return ReadMaxRows(self._options.max_rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next batch ends; `start` if there are no rows."""
        begin = Position.from_offset(start)
        return self._query(lambda conn: self._end(conn, begin, limit)).as_offset()

    def _end(self, conn: psycopg.Connection[Any], start: Position, limit: ReadLimit) -> Position:
        position.check_queue(conn, start)
        self._warn_of_lag(conn)
        watermark = self._target or position.watermark(conn)
        # Do not search skipped rows again with each poll: for a rare topic that could be the whole archive.
        seen = self._nothing_until
        end = position.next_end(
            conn, max(start, seen or start, key=_place), *self._limits(limit), watermark, self._scope
        )
        if end is None:
            self._nothing_until = Position(start.queue, watermark, 0)
        return end or start

    def _limits(self, limit: ReadLimit) -> tuple[int, int]:
        match limit:
            case ReadAllAvailable():
                return UNLIMITED, 0
            case ReadMaxRows(rows):
                return rows, self._options.max_bytes
            case ReadMaxBytes(size):
                return self._options.max_rows, size
        return self._options.max_rows, self._options.max_bytes

    def _warn_of_lag(self, conn: psycopg.Connection[Any]) -> None:
        if time.monotonic() - self._warned_at < LAG_WARNING_INTERVAL_S:
            return
        lag = position.watermark_lag(conn)
        if lag.oldest_s is not None and lag.oldest_s >= LAG_WARNING_S:
            self._warned_at = time.monotonic()
            log.warning("%s: rows archived since are not read until it ends", lag)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the watermark, for the progress of the query: how far this stream could be."""
        here = self._query(lambda conn: Position(position.queue_identifier(conn), position.watermark(conn), 0))
        return here.as_offset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Divide a batch into slices. The batch may be one of an earlier run."""
        first, last = Position.from_offset(start), Position.from_offset(end)
        return self._query(lambda conn: self._slices(conn, first, last))

    def _slices(self, conn: psycopg.Connection[Any], first: Position, last: Position) -> list[InputPartition]:
        position.check_queue(conn, first)
        position.check_queue(conn, last)
        self._check(conn)
        target = replay_target(conn) if self._options.replica_dsn else None
        ranges = slices.split_range(conn, self._scope.sql(), first.key, last.key, self._options.partitions)
        return [Slice.of(partial(self._slice, each), target) for each in ranges]

    def _slice(self, bounds: tuple[Key | None, Key | None], write: Write) -> str:
        condition = f"{self._scope.sql(write)} AND {between(*bounds, write)}"
        return slices.query("message_archive", self._columns, condition, self._options, write)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one slice, on an executor."""
        return self._rows.read(partition)


def _place(position: Position) -> tuple[int, int]:
    return int(position.xid), position.id
