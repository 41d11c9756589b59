"""A lake for `spark.read.format("pgrouse").option("lake", url)`.

Its log tells which files a query needs, and Arrow reads them. This needs no jar.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_pgrouse.lake.lake import literal
from pyspark_pgrouse.lake.options import LakeOptions
from pyspark_pgrouse.read.pushdown import is_enabled

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

# How much one task reads.
TASK_BYTES = 128 * 1024 * 1024
BATCH_ROWS = 10_000
# The operators of delta-rs and of Arrow.
OPERATORS: dict[type, tuple[str, Callable[[Any, Any], pc.Expression]]] = {
    datasource.EqualTo: ("=", operator.eq),
    datasource.GreaterThan: (">", operator.gt),
    datasource.GreaterThanOrEqual: (">=", operator.ge),
    datasource.LessThan: ("<", operator.lt),
    datasource.LessThanOrEqual: ("<=", operator.le),
}
# The types that Spark, delta-rs and Arrow compare in the same way. For floating-point numbers they treat NaN
# differently.
COMPARABLE = (str, int, date)


@dataclass(frozen=True)
class LakeFilter:
    """A condition on rows.

    files: for delta-rs, which leaves out files; rows: for Arrow, which leaves out parts of them.
    """

    files: str
    rows: pc.Expression


@dataclass
class LakeFiles(InputPartition):
    """The files that one task reads.

    They are pyarrow's fragments, which can be sent to executors, and the columns that they may have.
    """

    fragments: list[Any]
    schema: pa.Schema


class LakeBatch(DataSourceReader):
    """Reads a version of a lake: the given one, or the newest when the read was planned."""

    def __init__(self, options: LakeOptions, schema: StructType) -> None:
        self._options = options
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._conditions = list(_conditions_of(options))

    def partitions(self) -> list[InputPartition]:
        """Find the files that can have rows of the query in the log, and divide them among tasks."""
        lake = self._options.open()
        with lake.directory.explained("read"):
            rows = lake.table.to_pyarrow_dataset(
                filesystem=lake.directory.filesystem,
                schema=lake.schema,
                file_pruning_predicate=" AND ".join(c.files for c in self._conditions) or None,
            )
        log = pa.table(lake.table.get_add_actions())
        size_of = dict(zip(log["path"].to_pylist(), log["size_bytes"].to_pylist(), strict=True))
        # For no partition Spark would make one of its own, without files.
        parts = [*_shared_out(rows.get_fragments(), size_of)] or [[]]
        return [LakeFiles(part, lake.schema) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the files of a task, on an executor. A column that a file lacks is NULL."""
        files = cast("LakeFiles", partition)
        chosen = reduce(operator.and_, (c.rows for c in self._conditions)) if self._conditions else None
        for fragment in files.fragments:
            # A filter may use a column that the query does not read.
            found = fragment.to_batches(files.schema, self._schema.names, chosen, BATCH_ROWS)
            yield from (rows.cast(self._schema) for rows in found)


class PushdownLakeBatch(LakeBatch):
    """The same, with the filters of the query. Spark refuses this class unless its setting allows filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Use the filters to leave out files and parts of them; Spark applies all filters again."""
        self._conditions += filter(None, map(_condition, filters))
        return filters


def lake_batch(options: LakeOptions, schema: StructType) -> LakeBatch:
    """Return the reader for these options in this process."""
    is_pushed = is_enabled() if options.pushdown is None else options.pushdown
    return (PushdownLakeBatch if is_pushed else LakeBatch)(options, schema)


def _conditions_of(options: LakeOptions) -> Iterator[LakeFilter]:
    if options.since:
        yield _compared(datasource.GreaterThanOrEqual, "archived_at", options.since)
    if options.until:
        yield _compared(datasource.LessThan, "archived_at", options.until)
    if options.topics:
        yield _one_of("topic", options.topics)


def _condition(filter_: Filter) -> LakeFilter | None:
    column: tuple[str, ...] = getattr(filter_, "attribute", ())
    if len(column) != 1:
        return None
    match filter_:
        case datasource.In(_, values) if values and all(map(_is_comparable, values)):
            return _one_of(column[0], values)
        case datasource.IsNull():
            return LakeFilter(f"{_quoted(column[0])} IS NULL", pc.field(column[0]).is_null())
        case datasource.IsNotNull():
            return LakeFilter(f"{_quoted(column[0])} IS NOT NULL", pc.field(column[0]).is_valid())
    value = getattr(filter_, "value", None)
    return _compared(type(filter_), column[0], value) if type(filter_) in OPERATORS and _is_comparable(value) else None


def _compared(kind: type, column: str, value: Any) -> LakeFilter:
    sign, compare = OPERATORS[kind]
    return LakeFilter(f"{_quoted(column)} {sign} {_sql(value)}", compare(pc.field(column), value))


def _one_of(column: str, values: Sequence[Any]) -> LakeFilter:
    return LakeFilter(f"{_quoted(column)} IN ({', '.join(map(_sql, values))})", pc.field(column).isin(list(values)))


def _is_comparable(value: Any) -> bool:
    is_naive = isinstance(value, datetime) and value.tzinfo is None
    return isinstance(value, COMPARABLE) and not isinstance(value, bool) and not is_naive


def _sql(value: Any) -> str:
    if isinstance(value, int):
        return str(value)
    return literal(value if isinstance(value, str) else value.isoformat())


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _shared_out(fragments: Iterable[Any], size_of: dict[str, int]) -> Iterator[list[Any]]:
    part: list[Any] = []
    size = 0
    for fragment in fragments:
        part.append(fragment)
        size += size_of.get(fragment.path, TASK_BYTES)
        if size >= TASK_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
