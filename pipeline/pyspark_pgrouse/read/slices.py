"""Divides a range of rows into slices, one for each task, and reads a slice in a task."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from pgrouse.client.call import run
from pgrouse.client.queries.pipeline.archive_row import archive_size, row_bounds
from pgrouse.client.queries.pipeline.row import Condition, Key, Scope, Values, Write, between, select_rows
from pyspark_pgrouse.connection import connection
from pyspark_pgrouse.connection.replica import ReplayTarget
from pyspark_pgrouse.options import Mode
from pyspark_pgrouse.read.payload import reader
from pyspark_pgrouse.read.times import representable
from pyspark_pgrouse.schema import CORRUPT, COUNT, SourceColumn, select

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql.types import StructType

    from pyspark_pgrouse.options import Options

# Starting a slice with fewer rows costs more than reading them.
LEAST_ROWS = 2000
# How many pages of the archive are read for each slice to divide the whole archive evenly: half a megabyte.
SAMPLE_PAGES = 64

log = logging.getLogger("pgrouse.spark")


@dataclass(frozen=True)
class Slice(InputPartition):
    """The part that one task reads.

    Attributes:
        query: a statement; it is the same for all slices of a read, and for reads of the same kind.
        values: the values that it refers to, from `Values.text`; None = none.
        target: how far the server must have replayed, if rows are read from a replica.
    """

    query: str
    values: str | None = None
    target: ReplayTarget | None = None

    @classmethod
    def of(cls, query: Callable[[Write], str], target: ReplayTarget | None = None) -> Slice:
        """Return the slice whose statement this function writes."""
        values = Values()
        return cls(query(values.write), values.text(), target)


class SliceReader:
    """Reads slices into the columns of a schema. It is sent to the executors, so it holds no connection.

    Args:
        dsn: where the rows are read, as in `connection.connect`.
        columns: the columns of the statements, in their order.
        schema: the schema that Spark expects.
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
            reader(type_)  # report now, not in a task, that JSON cannot have this type

    def read(self, part: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slice."""
        if not isinstance(part, Slice):  # Spark's stand-in for no slices at all
            return
        corrupt = 0
        for batch in connection.arrow(self._dsn, part.query, values=part.values, target=part.target):
            read, misfits = self._conform(batch)
            corrupt += misfits
            yield read
        if corrupt:
            log.warning("%s", _counted(corrupt, CORRUPT in self._schema.names))

    def _conform(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """Return the batch in the form that Spark expects, and the number of corrupt payloads."""
        expected, corrupt = self._arrow, 0
        arrays = [
            representable(array if array.type == field.type or field.name in self._parsed else array.cast(field.type))
            for field, array in zip(expected, batch.columns, strict=True)
        ]
        for name, type_ in self._parsed.items():
            place = expected.get_field_index(name)
            values, misfits = reader(type_)(arrays[place].to_pylist())
            arrays[place] = pa.array(values, expected.field(name).type)
            beside = pa.array(misfits, pa.string())
            corrupt += len(beside) - beside.null_count
            if (at := expected.get_field_index(CORRUPT)) >= 0:
                arrays[at] = beside
        return pa.RecordBatch.from_arrays(arrays, schema=expected), corrupt

    @property
    def _arrow(self) -> pa.Schema:
        return to_arrow_schema(self._schema, timezone="UTC")


def _counted(corrupt: int, kept: bool) -> str:
    where = f"they are in {CORRUPT}" if kept else f"they are lost, since no column {CORRUPT} is read"
    return f"{corrupt} payloads have not the fields that were asked for: {where}"


def query(table: str, columns: Sequence[SourceColumn], condition: str, options: Options, write: Write) -> str:
    """Return the statement that reads a slice."""
    text = select_rows(table, select(columns), condition)
    if options.group_by:
        keys = (str(number) for number, column in enumerate(columns, 1) if column is not COUNT)
        text = f"{text} GROUP BY {', '.join(keys) or '()'}"
    return text if options.limit is None else f"{text} LIMIT {write(options.limit, 'bigint')}"


def split_range(
    conn: psycopg.Connection[Any], condition: str, start: Key | None, end: Key | None, parts: int
) -> list[tuple[Key | None, Key | None]]:
    """Divide a range of the archive into at most `parts` that have about the same number of rows.

    Args:
        conn: a connection.
        condition: the condition on rows, about the alias `a`.
        start: exclusive; None = from the first.
        end: inclusive; None = to the last. Without any bound the rows are sampled instead of counted.
        parts: the maximum number of tasks.
    """
    if parts == 1:
        return [(start, end)]
    percent = None if start or end else _percent(conn, parts)
    least = LEAST_ROWS if percent is None else 1
    bounds: list[Key | None] = [*run(conn, row_bounds(f"{condition} AND {between(start, end)}", parts, least, percent))]
    return list(zip([start, *bounds], [*bounds, end], strict=True))


def _percent(conn: psycopg.Connection[Any], parts: int) -> float:
    (size,) = run(conn, archive_size())
    return min(100.0, 100.0 * SAMPLE_PAGES * parts / max(1, size.pages))


def scope_of(options: Options, also: tuple[Condition, ...] = ()) -> Scope:
    """Return the rows that the options choose, and to which more conditions apply."""
    return Scope(options.mode is Mode.DEAD, options.topics, options.since, options.until, also)
