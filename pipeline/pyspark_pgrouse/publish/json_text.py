"""Converts structs, maps, arrays and all other columns to JSON, with every digit of their numbers."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow import types

Write = Callable[[Any], str]


def as_json(column: pa.Array) -> pa.Array:
    """Return a column as JSON text. A field without a value is null; NaN stays NaN, which JSON parsers refuse."""
    write = _writer(column.type)
    return pa.array([None if value is None else write(value) for value in column.to_pylist()], pa.string())


def _writer(type_: pa.DataType) -> Write:
    """Return a function that writes values of a type that are not null."""
    if types.is_struct(type_):
        return _struct({field.name: _nullable(_writer(field.type)) for field in type_})
    if types.is_map(type_):
        return _map(_writer(type_.key_type), _nullable(_writer(type_.item_type)))
    if types.is_list(type_) or types.is_large_list(type_):
        return _list(_nullable(_writer(type_.value_type)))
    for holds, write in _SCALARS:
        if getattr(types, f"is_{holds}")(type_):
            return write
    return _string


def _nullable(write: Write) -> Write:
    return lambda value: "null" if value is None else write(value)


def _struct(fields: dict[str, Write]) -> Write:
    named = {name: (_string(name), write) for name, write in fields.items()}
    return lambda value: "{" + ",".join(f"{name}:{write(value[key])}" for key, (name, write) in named.items()) + "}"


def _map(write_key: Write, write: Write) -> Write:
    def key(value: Any) -> str:
        written = write_key(value)
        return written if written.startswith('"') else _string(written)

    return lambda pairs: "{" + ",".join(f"{key(name)}:{write(value)}" for name, value in pairs) + "}"


def _list(write: Write) -> Write:
    return lambda values: "[" + ",".join(map(write, values)) + "]"


def _string(value: Any) -> str:
    return json.dumps(str(value), ensure_ascii=False)


_SCALARS: tuple[tuple[str, Write], ...] = (
    ("boolean", lambda value: "true" if value else "false"),
    ("integer", str),
    ("floating", json.dumps),
    ("decimal", lambda value: format(value, "f")),
    ("binary", lambda value: _string(base64.b64encode(value).decode())),
    ("large_binary", lambda value: _string(base64.b64encode(value).decode())),
    (
        "temporal",
        lambda value: _string(value.isoformat()) if hasattr(value, "isoformat") else str(value.total_seconds()),
    ),
)
