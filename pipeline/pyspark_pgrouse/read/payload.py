"""Converts JSON payloads to columns, with the types in Spark's DDL.

A payload that does not match is a misfit: its struct is NULL, and another column has its text. Each row is read
separately, so its result does not depend on other rows, and a batch that is read again is the same. (Arrow's JSON
reader refuses a whole block because of one bad value, and crashes the process on a payload that is not an object.)
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import TYPE_CHECKING, Any

from pgrouse.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

Read = Callable[[Any], Any]


class Misfit(ValueError):
    """A value is not of the type that its column has."""


def reader(type_: DataType) -> Callable[[Iterable[str | None]], tuple[list[Any], list[str | None]]]:
    """Return a function that reads payloads: for each text the value for Arrow, and the text if it does not match.

    Raises:
        ConfigError: JSON cannot be read into the type of a column.
    """
    read = _of(type_)

    def read_all(texts: Iterable[str | None]) -> tuple[list[Any], list[str | None]]:
        values: list[Any] = []
        misfits: list[str | None] = []
        for text in texts:
            value, misfit = _read(text, read)
            values.append(value)
            misfits.append(misfit)
        return values, misfits

    return read_all


def _read(text: str | None, read: Read) -> tuple[Any, str | None]:
    if text is None:
        return None, None
    try:
        return read(json.loads(text)), None
    except (ValueError, RecursionError, OverflowError):  # also: long numbers, deep nesting
        return None, text


def _of(type_: DataType) -> Read:
    """Return a function that reads a value of a type, if it is not null."""
    name = type_.typeName()
    if name == "struct":
        fields = type_.fields  # type: ignore[attr-defined]
        return _struct({field.name: _nullable(_of(field.dataType)) for field in fields})
    if name == "array":
        return _array(_nullable(_of(type_.elementType)))  # type: ignore[attr-defined]
    if name == "map" and type_.keyType.typeName() == "string":  # type: ignore[attr-defined]
        return _map(_nullable(_of(type_.valueType)))  # type: ignore[attr-defined]
    if name == "decimal":
        return _decimal(type_.precision, type_.scale)  # type: ignore[attr-defined]
    if name in SIMPLE:
        return SIMPLE[name]
    raise ConfigError(f"option payload: JSON cannot be read as {type_.simpleString().upper()}")


def _nullable(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def _struct(fields: dict[str, Read]) -> Read:
    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Misfit
        return {name: of_field(value.get(name)) for name, of_field in fields.items()}

    return read


def _array(of_element: Read) -> Read:
    def read(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise Misfit
        return [of_element(element) for element in value]

    return read


def _map(of_value: Read) -> Read:
    def read(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise Misfit
        return [(key, of_value(found)) for key, found in value.items()]

    return read


def _integer(bits: int) -> Read:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def read(value: Any) -> int:
        if type(value) is float and value.is_integer():  # 1.0 is an integer of JSON Schema, too
            value = int(value)
        if type(value) is not int or not least <= value <= most:  # a bool is an int, too
            raise Misfit
        return value

    return read


def _decimal(precision: int, scale: int) -> Read:
    exact = Context(prec=precision, traps=[InvalidOperation, Inexact])
    unit = Decimal(1).scaleb(-scale)

    def read(value: Any) -> Decimal:
        if type(value) not in (int, float, str):
            raise Misfit
        try:
            return Decimal(str(value)).quantize(unit, context=exact)
        except ArithmeticError as error:
            raise Misfit from error

    return read


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Misfit
    return value


def _double(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise Misfit
    return float(value)


def _string(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _timestamp(value: Any) -> datetime:
    if not isinstance(value, str):
        raise Misfit
    moment = datetime.fromisoformat(value)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _date(value: Any) -> date:
    if not isinstance(value, str):
        raise Misfit
    return date.fromisoformat(value)


SIMPLE: dict[str, Read] = {
    "boolean": _boolean,
    "byte": _integer(8),
    "short": _integer(16),
    "integer": _integer(32),
    "long": _integer(64),
    "float": _double,
    "double": _double,
    "string": _string,
    "timestamp": _timestamp,
    "date": _date,
}
