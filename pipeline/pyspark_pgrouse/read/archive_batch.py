"""Reading the archive, or its dead messages, by `spark.read`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_pgrouse import connection, schema
from pyspark_pgrouse.read import slices
from pyspark_pgrouse.read.pushdown import condition
from pyspark_pgrouse.read.scope import Scope, literal
from pyspark_pgrouse.read.slices import Slice, SliceReader

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from pyspark_pgrouse.options import Options

# On a standby the snapshot does not list who runs, so all from its xmin on counts as not there yet.
SNAPSHOT = """
    SELECT CASE
      WHEN pg_catalog.pg_is_in_recovery() THEN format('%1$s:%1$s:', pg_catalog.pg_snapshot_xmin(n.snapshot))
      ELSE n.snapshot::text
    END
    FROM pg_catalog.pg_current_snapshot() AS n (snapshot)
"""
# What says which rows a slice has.
NEEDED = ("archive_xid", "id")
QUERY = "SELECT {columns} FROM messages.message_archive AS a WHERE {condition} AND {range}"


class ArchiveBatch(DataSourceReader):
    """Reads what was archived when the read was planned.

    All tasks see the same moment: the snapshot is taken once, and each of them leaves out what it does not show. An archived row never
    changes, so nothing else can differ; only what the retention deletes meanwhile is missing.
    """

    def __init__(self, options: Options, schema_: StructType) -> None:
        self._options = options
        self._columns = schema.chosen(options, schema_)
        self._rows = SliceReader(options.dsn, self._columns, schema_)
        self._also: tuple[str, ...] = ()

    def partitions(self) -> list[InputPartition]:
        """Take the snapshot, and cut what it shows into slices."""
        return connection.run_with_retry(self._options.dsn, self._plan)

    def _plan(self, conn: psycopg.Connection[Any]) -> list[InputPartition]:
        scope = Scope.of(self._options, self._also)
        connection.check(conn, "message_archive", [*schema.sources(self._columns), *scope.columns(), *NEEDED])
        chosen = f"{scope.sql()} AND {_visible(conn)}"
        ranges = slices.split_range(conn, chosen, None, None, self._options.partitions)
        columns = schema.select(self._columns)
        return [
            Slice(QUERY.format(columns=columns, condition=chosen, range=slices.between(*bounds))) for bounds in ranges
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one slice, on an executor."""
        return self._rows.read(partition)


class PushdownArchiveBatch(ArchiveBatch):
    """The same, with the filters of the query run by PostgreSQL. Spark refuses this class unless its setting allows that."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take what SQL can say in the same words; return the rest."""
        for filter_ in filters:
            found = condition(filter_, self._columns)
            if found is None:
                yield filter_
            else:
                self._also = (*self._also, found)


def _visible(conn: psycopg.Connection[Any]) -> str:
    snapshot = conn.execute(SNAPSHOT).fetchone()[0]  # type: ignore[index]
    newest = literal(snapshot.split(":")[1])
    return f"a.archive_xid < {newest}::xid8 AND pg_visible_in_snapshot(a.archive_xid, {literal(snapshot)}::pg_snapshot)"
