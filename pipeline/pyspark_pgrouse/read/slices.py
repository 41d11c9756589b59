"""A range of rows cut into slices, one for each task, and how a task reads its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_pgrouse import connection
from pyspark_pgrouse.read.payload import reader
from pyspark_pgrouse.read.scope import literal
from pyspark_pgrouse.schema import MISFIT, SourceColumn

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql.types import StructType

# A slice with fewer rows costs more to start than to read.
LEAST_ROWS = 2000
# How much of the archive is looked at to find even slices of all of it: 32 MB.
SAMPLE_PAGES = 4096

ROWS = """
    SELECT t.archive_xid::text, t.id
    FROM (
      SELECT a.archive_xid, a.id, row_number() OVER (ORDER BY a.archive_xid, a.id) AS place, count(*) OVER () AS total
      FROM messages.message_archive AS a {sample}
      WHERE {condition}
    ) AS t
    WHERE t.place %% greatest(ceil(t.total::numeric / %(parts)s)::bigint, %(least)s) = 0 AND t.place < t.total
    ORDER BY t.place
"""
# Without rights on the partitions: what they hold is not asked, only how long they are.
PAGES = """
    SELECT coalesce(sum(pg_catalog.pg_relation_size(p.relid)), 0)::bigint / current_setting('block_size')::bigint
    FROM pg_catalog.pg_partition_tree('messages.message_archive') AS p
    WHERE p.isleaf
"""

Key = tuple[str, int]


class Slice(InputPartition):
    """What one task reads: a statement."""

    def __init__(self, query: str) -> None:
        self.query = query


class SliceReader:
    """Reads slices into the columns of a schema. It is sent to the executors, so it holds no connection.

    Args:
        dsn: as in `connection.connect`.
        columns: what the statements return, in their order.
        schema: what Spark expects.
    """

    def __init__(self, dsn: str | None, columns: Sequence[SourceColumn], schema: StructType) -> None:
        self._dsn = dsn
        self._columns = tuple(columns)
        self._schema = schema
        self._parsed = {
            field.name: field.dataType
            for field, column in zip(schema.fields, columns, strict=True)
            if column.spark.startswith("STRUCT")
        }
        for type_ in self._parsed.values():
            reader(type_)  # a type that JSON cannot be is said now, not by a task

    def read(self, part: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield what a slice has."""
        if not isinstance(part, Slice):  # Spark's stand-in for no slices at all
            return
        for batch in connection.arrow(self._dsn, part.query):
            yield self._conform(batch)

    def _conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        expected = self._arrow
        arrays = [
            array if array.type == field.type or field.name in self._parsed else array.cast(field.type)
            for field, array in zip(expected, batch.columns, strict=True)
        ]
        for name, type_ in self._parsed.items():
            place = expected.get_field_index(name)
            values, misfits = reader(type_)(arrays[place].to_pylist())
            arrays[place] = pa.array(values, expected.field(name).type)
            if (beside := expected.get_field_index(MISFIT)) >= 0:
                arrays[beside] = pa.array(misfits, pa.string())
        return pa.RecordBatch.from_arrays(arrays, schema=expected)

    @property
    def _arrow(self) -> pa.Schema:
        return to_arrow_schema(self._schema, timezone="UTC")


def between(start: Key | None, end: Key | None) -> str:
    """Return the condition on the alias `a` that says: after start, up to and with end; None = no bound."""
    parts = [f"(a.archive_xid, a.id) > ({literal(start[0])}::xid8, {start[1]})"] if start else []
    parts += [f"(a.archive_xid, a.id) <= ({literal(end[0])}::xid8, {end[1]})"] if end else []
    return " AND ".join(parts) or "TRUE"


def split_range(
    conn: psycopg.Connection[Any], condition: str, start: Key | None, end: Key | None, parts: int
) -> list[tuple[Key | None, Key | None]]:
    """Cut a range of the archive into at most `parts` that have about as many rows each.

    Args:
        conn: a connection.
        condition: which rows are meant, about the alias `a`.
        start: exclusive; None = from the first.
        end: inclusive; None = to the last. Without any bound the rows are not counted but sampled.
        parts: how many tasks there may be.
    """
    if parts == 1:
        return [(start, end)]
    sample = "" if start or end else f"TABLESAMPLE SYSTEM ({_share(conn)})"
    query = ROWS.format(sample=sample, condition=f"{condition} AND {between(start, end)}".replace("%", "%%"))
    least = 1 if sample else LEAST_ROWS
    bounds: list[Key | None] = list(conn.execute(query, {"parts": parts, "least": least}).fetchall())
    return list(zip([start, *bounds], [*bounds, end], strict=True))


def _share(conn: psycopg.Connection[Any]) -> float:
    pages: int = conn.execute(PAGES).fetchone()[0]  # type: ignore[index]
    return min(100.0, 100.0 * SAMPLE_PAGES / max(1, pages))
