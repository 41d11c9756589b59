"""Reads the archive, or its dead messages, with `spark.read`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pgrouse.client.call import run
from pgrouse.client.queries.pipeline.archive_row import archive_size
from pgrouse.client.queries.pipeline.row import EVERYTHING, Condition, Key, Write, between, literal, visible
from pyspark_pgrouse import schema
from pyspark_pgrouse.connection import connection
from pyspark_pgrouse.connection.replica import replay_target
from pyspark_pgrouse.read import slices
from pyspark_pgrouse.read.pushdown import condition, is_enabled
from pyspark_pgrouse.read.slices import Slice, SliceReader, scope_of

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from pyspark_pgrouse.options import Options

# On a standby the snapshot does not list running transactions, so all from its xmin on count as invisible.
SNAPSHOT = """
    SELECT CASE
      WHEN pg_catalog.pg_is_in_recovery() THEN format('%1$s:%1$s:', pg_catalog.pg_snapshot_xmin(n.snapshot))
      ELSE n.snapshot::text
    END
    FROM pg_catalog.pg_current_snapshot() AS n (snapshot)
"""
# The columns that decide which rows a slice has.
NEEDED = ("archive_xid", "id")
# A read of more rows than this without any filter is worth a warning.
LARGE = 100_000
# An ADBC connection costs the server about 45 ms of CPU, because it reads all types; to read 1,500,000 rows of two
# columns costs it 600 ms, and 100,000 rows of the default columns 140 ms.
LEAST_VALUES = 3_000_000
# Contents may be large: one counts as this many values.
VALUES_OF_CONTENT = 30

log = logging.getLogger("pgrouse.spark")


class ArchiveBatch(DataSourceReader):
    """Reads the rows that were archived when the read was planned.

    All tasks see the same moment: the snapshot is taken once, and each task leaves out the rows that it does not show.
    An archived row never changes, so the only difference can be rows that the retention deletes in the meantime.
    """

    def __init__(self, options: Options, schema_: StructType) -> None:
        self._options = options
        self._columns = schema.chosen(options, schema_)
        self._rows = SliceReader(options.replica_dsn or options.dsn, self._columns, schema_)
        self._also: tuple[Condition, ...] = ()

    def partitions(self) -> list[InputPartition]:
        """Take the snapshot, and divide its rows into slices."""
        return connection.run_with_retry(self._options.dsn, self._plan)

    def _plan(self, conn: psycopg.Connection[Any]) -> list[InputPartition]:
        scope = scope_of(self._options, self._also)
        connection.check(conn, "message_archive", [*schema.sources(self._columns), *scope.columns(), *NEEDED])
        snapshot = conn.execute(SNAPSHOT).fetchone()[0]  # type: ignore[index]
        target = replay_target(conn) if self._options.replica_dsn else None
        (size,) = run(conn, archive_size())
        if size.rows > LARGE and scope == EVERYTHING and self._options.limit is None and not self._options.group_by:
            _warn_once(self._names_columns())

        def chosen(write: Write) -> str:
            return f"{scope.sql(write)} AND {visible(snapshot, write)}"

        ranges = slices.split_range(conn, chosen(literal), None, None, self._tasks(size.rows))
        return [Slice.of(partial(self._query, chosen, each), target) for each in ranges]

    def _names_columns(self) -> bool:
        """Whether the query has fewer columns than by default; Spark does not tell which ones it needs."""
        return len(self._columns) < len(schema.default_columns(self._options)) or bool(self._options.columns)

    def _tasks(self, rows: int) -> int:
        """Return how many tasks read an archive with this many rows, by the statistics of PostgreSQL.

        0 = there are none yet.
        """
        if self._options.limit is not None or self._options.group_by:
            return 1
        values = rows * sum(VALUES_OF_CONTENT if each.name in schema.CONTENT else 1 for each in self._columns)
        worthwhile = max(1, values // LEAST_VALUES) if rows else self._options.partitions
        return min(self._options.partitions, worthwhile)

    def _query(self, chosen: Condition, bounds: tuple[Key | None, Key | None], write: Write) -> str:
        condition = f"{chosen(write)} AND {between(*bounds, write)}"
        return slices.query("message_archive", self._columns, condition, self._options, write)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one slice, on an executor."""
        return self._rows.read(partition)


class PushdownArchiveBatch(ArchiveBatch):
    """The same, but PostgreSQL applies the filters of the query.

    Spark refuses this class unless its setting allows filters.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take the filters that mean the same in SQL; return the rest."""
        for filter_ in filters:
            found = condition(filter_, self._columns)
            if found is None:
                yield filter_
            else:
                self._also = (*self._also, found)


def archive_batch(options: Options, schema_: StructType) -> ArchiveBatch:
    """Return the reader for these options in this process.

    A limit applies to the rows that the options choose, so the filters of the query come after it: Spark applies them.
    """
    is_pushed = is_enabled() and options.limit is None if options.pushdown is None else options.pushdown
    return (PushdownArchiveBatch if is_pushed else ArchiveBatch)(options, schema_)


@lru_cache
def _warn_once(names_columns: bool) -> None:
    log.warning(
        "the query reads the whole archive: it has no filter that PostgreSQL runs, and no option (topics, since, "
        "until) limits it. If it has filters, see that the session has spark.sql.python.filterPushdown.enabled=true%s",
        "" if names_columns else ". It reads all default columns, also for a count(): name those it needs by columns",
    )
