"""Encodes columns of Arrow in the binary format of COPY, column by column.

There is no Python object per row, no quoting, and no parsing by the server.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark_pgrouse.publish.columns import Columns

HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
TRAILER = struct.pack(">h", -1)
NULL = struct.pack(">i", -1)
# PostgreSQL counts from 2000.
EPOCH_US = 946_684_800_000_000
DEFAULT_PRIORITY = 5  # of the column; COPY cannot leave out one row's value
JSONB_VERSION = b"\x01"

# The format of the number in a column, after its length of four bytes.
WHOLE = {"priority": ">i2", "max_attempts": ">i4", "batch_id": ">i8"}
MOMENTS = ("available_at", "expires_at")
WAITS = ("delay", "ttl", "timeout", "retention")
JSON = ("payload", "headers", "backoff")


def encode(columns: Columns, attempt: UUID) -> memoryview:
    """Return the encoded rows, with the columns in their order."""
    head = struct.pack(">hi", 1 + len(columns), 16) + attempt.bytes
    fields = [part for name, column in columns.items() for part in _field(name, column)]
    rows = pc.binary_join_element_wise(_binary(head), *fields, _binary(b""))
    _, offsets, values = rows.buffers()
    first, last = _span(offsets, rows)
    return memoryview(values)[first:last] if values else memoryview(b"")


def _span(offsets: pa.Buffer, rows: pa.Array) -> tuple[int, int]:
    marks = memoryview(offsets).cast("i")
    return marks[rows.offset], marks[rows.offset + len(rows)]


def _binary(value: bytes) -> Any:
    return pa.scalar(value, pa.binary())


def _field(name: str, column: pa.Array) -> list[Any]:
    """Return the parts that one column adds to each row."""
    if name == "priority":
        column = column.fill_null(DEFAULT_PRIORITY)
    if name in WHOLE:
        return [_fixed(column, [(WHOLE[name], _numbers(column))])]
    if name in MOMENTS:
        return [_fixed(column, [(">i8", _numbers(column) - EPOCH_US)])]
    if name in WAITS:
        return [_fixed(column, [(">i8", _numbers(column)), (">i4", 0), (">i4", 0)])]
    return _variable(column, JSONB_VERSION if name in JSON else b"")


def _numbers(column: pa.Array) -> Any:
    return column.fill_null(0).to_numpy(zero_copy_only=False)


def _fixed(column: pa.Array, parts: list[tuple[str, Any]]) -> pa.Array:
    """Return numbers, each after their common length."""
    layout = np.dtype([("length", ">i4"), *((f"part{i}", kind) for i, (kind, _) in enumerate(parts))])
    made = np.empty(len(column), layout)
    made["length"] = layout.itemsize - 4
    for i, (_, values) in enumerate(parts):
        made[f"part{i}"] = values
    return _nullable(column, _of_bytes(made))


def _of_bytes(made: Any) -> pa.Array:
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(made.itemsize), len(made), [None, pa.py_buffer(made)])
    return fixed.cast(pa.binary())


def _nullable(column: pa.Array, made: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), made, _binary(NULL)) if column.null_count else made


def _variable(column: pa.Array, prefix: bytes) -> list[Any]:
    """Return lengths, the prefix of each value, and the values."""
    content = column.cast(pa.binary())
    layout = np.dtype([("length", ">i4"), ("prefix", f"V{len(prefix)}")]) if prefix else np.dtype([("length", ">i4")])
    made = np.empty(len(column), layout)
    made["length"] = _numbers(pc.binary_length(content)) + len(prefix)
    if prefix:
        made["prefix"] = np.void(prefix)
    return [_nullable(column, _of_bytes(made)), pc.fill_null(content, _binary(b"")) if column.null_count else content]
