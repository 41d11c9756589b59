"""Converts filters of a Spark query to conditions of PostgreSQL, if both mean the same.

Spark passes only what its Python API knows: comparisons, IN, IS NULL, LIKE with one % at an end or one at each, and NOT
of these; all of them must hold. It does not pass an OR, a limit or the list of columns (Spark 4.3).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource

if TYPE_CHECKING:
    from pgrouse.client.queries.pipeline.row import Condition
    from pyspark_pgrouse.schema import SourceColumn

# Spark plans a read with this program if its session allows filters in sources, and the query has some. There is no
# other way to find out.
PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"

# The types that can be compared, and their types in PostgreSQL.
ORDERED = {"BIGINT": "bigint", "INT": "bigint", "TIMESTAMP": "timestamptz"}
EQUAL = {**ORDERED, "STRING": "text"}
# Text is compared for equality only: its order depends on a collation.
OPERATORS: dict[type, tuple[str, dict[str, str]]] = {
    datasource.EqualTo: ("=", EQUAL),
    datasource.EqualNullSafe: ("IS NOT DISTINCT FROM", EQUAL),
    datasource.GreaterThan: (">", ORDERED),
    datasource.GreaterThanOrEqual: (">=", ORDERED),
    datasource.LessThan: ("<", ORDERED),
    datasource.LessThanOrEqual: ("<=", ORDERED),
}
# Parts of a text, as LIKE is planned: 'a%', '%a', '%a%'.
PARTS: dict[type, str] = {
    datasource.StringStartsWith: "pg_catalog.starts_with({column}::text, {value})",
    datasource.StringEndsWith: "pg_catalog.right({column}::text, pg_catalog.length({value})) = {value}",
    datasource.StringContains: "pg_catalog.strpos({column}::text, {value}) > 0",
}
# JSON with the same meaning has the same text here, but that is not guaranteed. A count exists only when the rows are
# grouped.
NOT_PUSHED = ("payload", "_corrupt_record", "headers", "state", "progress", "history", "output", "body", "count")


def is_enabled() -> bool:
    """Whether this process plans a query whose filters PostgreSQL may run."""
    return PUSHDOWN_WORKER in sys.modules


def condition(filter_: datasource.Filter, columns: Sequence[SourceColumn]) -> Condition | None:
    """Return a function that writes the filter as SQL about the alias `a`; None if Spark must apply it."""
    if isinstance(filter_, datasource.Not):
        negated = condition(filter_.child, columns)
        return None if negated is None else lambda write: f"NOT ({negated(write)})"
    attribute = getattr(filter_, "attribute", ())
    column = next((one for one in columns if (one.name,) == attribute), None)
    return None if column is None or column.name in NOT_PUSHED else _of_column(filter_, column)


def _of_column(filter_: datasource.Filter, column: SourceColumn) -> Condition | None:
    match filter_:
        case datasource.In(_, values):
            return _any_of(column, values)
        case datasource.IsNull():
            return lambda _: f"{column.bare} IS NULL"
        case datasource.IsNotNull():
            return lambda _: f"{column.bare} IS NOT NULL"
    value = getattr(filter_, "value", None)
    if form := PARTS.get(type(filter_)):
        return _part(column, form, value)
    operator, types = OPERATORS.get(type(filter_), ("", {}))
    return _compared(column, operator, types, value)


def _any_of(column: SourceColumn, values: Sequence[Any]) -> Condition | None:
    if column.spark not in EQUAL or not values or not all(_is_exact(column, value) for value in values):
        return None
    type_ = f"{_type(column, EQUAL)}[]"
    found = [_sent(column, value) for value in values]
    return lambda write: f"{column.bare} = ANY ({write(found, type_)}::{type_})"


def _compared(column: SourceColumn, operator: str, types: dict[str, str], value: Any) -> Condition | None:
    if column.spark not in types or not _is_exact(column, value):
        return None
    return lambda write: f"{column.bare} {operator} {write(_sent(column, value), _type(column, types))}"


def _part(column: SourceColumn, form: str, value: Any) -> Condition | None:
    if column.spark != "STRING" or not _is_exact(column, value):
        return None
    return lambda write: form.format(column=column.bare, value=write(value, "text"))


def _type(column: SourceColumn, types: dict[str, str]) -> str:
    return "xid8" if column.name == "archive_xid" else types[column.spark]


def _sent(column: SourceColumn, value: Any) -> Any:
    return str(value) if column.name == "archive_xid" else value  # a number is not cast to xid8


def _is_exact(column: SourceColumn, value: Any) -> bool:
    """Whether the value is one of the column's type that PostgreSQL can store."""
    match column.spark:
        case "STRING":
            return isinstance(value, str) and "\0" not in value
        case "TIMESTAMP":
            return isinstance(value, datetime) and value.tzinfo is not None
    return isinstance(value, int) and not isinstance(value, bool) and (column.name != "archive_xid" or value >= 0)
