"""Filters of a Spark query as conditions of PostgreSQL, where both mean the same."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource

from pyspark_pgrouse.read.scope import literal

if TYPE_CHECKING:
    from pyspark_pgrouse.schema import SourceColumn

ORDERED = ("BIGINT", "INT", "TIMESTAMP")
# Text is compared for equality only: its order is a matter of collation.
OPERATORS: dict[type, tuple[str, tuple[str, ...]]] = {
    datasource.EqualTo: ("=", (*ORDERED, "STRING")),
    datasource.GreaterThan: (">", ORDERED),
    datasource.GreaterThanOrEqual: (">=", ORDERED),
    datasource.LessThan: ("<", ORDERED),
    datasource.LessThanOrEqual: ("<=", ORDERED),
}
# JSON of the same meaning has the same text here, but that is not guaranteed.
NOT_PUSHED = ("payload", "payload_misfit", "headers", "state", "progress", "history", "output")


def condition(filter_: datasource.Filter, columns: Sequence[SourceColumn]) -> str | None:
    """Return the filter as SQL about the alias `a`; None if Spark must do it."""
    attribute = getattr(filter_, "attribute", ())
    column = next((one for one in columns if (one.name,) == attribute), None)
    if column is None or column.name in NOT_PUSHED:
        return None
    match filter_:
        case datasource.In(_, values):
            return _any_of(column, values)
        case datasource.IsNull():
            return f"{column.bare} IS NULL"
        case datasource.IsNotNull():
            return f"{column.bare} IS NOT NULL"
    operator, types = OPERATORS.get(type(filter_), ("", ()))
    if column.spark not in types:
        return None
    return _compared(column, operator, filter_.value)  # type: ignore[attr-defined]


def _any_of(column: SourceColumn, values: Sequence[Any]) -> str | None:
    value_sql = [_value(column, value) for value in values]
    if not value_sql or None in value_sql or column.spark not in OPERATORS[datasource.EqualTo][1]:
        return None
    return f"{column.bare} IN ({', '.join(str(value) for value in value_sql)})"


def _compared(column: SourceColumn, operator: str, value: Any) -> str | None:
    value_sql = _value(column, value)
    return None if value_sql is None else f"{column.bare} {operator} {value_sql}"


def _value(column: SourceColumn, value: Any) -> str | None:
    if isinstance(value, datetime) and value.tzinfo is None:
        return None
    if isinstance(value, str) and "\0" in value:
        return None
    if not isinstance(value, int | str | datetime) or isinstance(value, bool):
        return None
    value_sql = literal(value)
    return f"({value_sql})::text::xid8" if column.name == "archive_xid" else value_sql
