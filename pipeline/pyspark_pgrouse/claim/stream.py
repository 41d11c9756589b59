"""Spark as a worker: `spark.readStream` with mode `claim`.

A micro-batch is what the claims of its end offset hold. It is acknowledged when the offset after it is asked for: only then Spark has
written that it is done, and it asks after every batch, the last one included. (`commit()` never comes for the last one.)
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pgrouse.errors import ConfigError
from pyspark_pgrouse import schema
from pyspark_pgrouse.claim.offset import ClaimOffset
from pyspark_pgrouse.claim.query_end import QueryEnd
from pyspark_pgrouse.claim.share import claimed_slice
from pyspark_pgrouse.claim.worker import ClaimWorker
from pyspark_pgrouse.read.slices import SliceReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_pgrouse.options import Options

SHORTEST_LOCK = timedelta(seconds=1)
LONGEST_LOCK = timedelta(days=7)
# A task for fewer messages costs more to start than they take to read.
LEAST_ROWS = 2000


class ClaimStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads by claiming. One object lives in a process beside the driver as long as the query, and works; copies of it read on executors.

    Args:
        options: of the stream; mode `claim`.
        schema_: the columns that it has.

    Raises:
        ConfigError: there are no topics, or the lock is too short or too long.
    """

    def __init__(self, options: Options, schema_: StructType) -> None:
        _check(options)
        self._options = options
        self._columns = schema.select(schema.chosen(options, schema_))
        self._rows = SliceReader(options.dsn, schema.chosen(options, schema_), schema_)
        # Made when first used: the copies that executors get have none.
        self._worker: ClaimWorker | None = None
        self._query_end: QueryEnd | None = None

    @property
    def worker(self) -> ClaimWorker:
        """The worker, at work from its first use on."""
        if self._worker is None:
            self._query_end = QueryEnd()
            self._query_end.watch()
            worker = ClaimWorker(self._options)
            worker.start()
            self._worker = worker
        return self._worker

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how many messages a batch has at most."""
        return ReadMaxRows(self._options.max_rows)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a new query begins: before its first claim."""
        return ClaimOffset().as_offset()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Let the query end after as many messages as are ready now."""
        self.worker.limit_to_ready()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Acknowledge the batch that ends at `start`, which is done, and claim the next one; `start` again if there is nothing."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_rows
        claims = self.worker.acknowledge_and_claim(ClaimOffset.from_offset(start).claims, rows)
        return ClaimOffset(claims).as_offset() if claims else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Share out what the claims of a batch hold. Of one that is read again after a restart: what was not lost meanwhile."""
        held = self.worker.restore(ClaimOffset.from_offset(end).claims)
        size = max(LEAST_ROWS, -(-len(held) // self._options.partitions))
        return [claimed_slice(self._columns, held[at : at + size]) for at in range(0, len(held), size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a slice, on an executor: what of it is still held."""
        return self._rows.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: it comes for some batches only."""

    def stop(self) -> None:
        """Give back what is not acknowledged, if the query ended. If Spark is gone it keeps its locks: a restart goes on with it.

        Unless the option releaseOnCrash says that there will be none.
        """
        if self._worker is None:
            return
        nothing_waits = self._options.release_on_crash or not self._worker.in_flight
        self._worker.stop(release=nothing_waits or self._query_end is None or self._query_end.is_orderly())


def _check(options: Options) -> None:
    if not options.topics:
        raise ConfigError(
            "mode claim needs option topics: the topics whose messages it works, with commas between them"
        )
    if options.lock is not None and not SHORTEST_LOCK <= options.lock <= LONGEST_LOCK:
        raise ConfigError(f"option lockDuration must be between 1s and 7d, found {options.lock}")
