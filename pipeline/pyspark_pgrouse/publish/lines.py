"""Converts lines of JSON to columns of text: every value as in the line, digit by digit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa

from pyspark_pgrouse.publish.columns import CORRUPT

DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\n\r]*")


def split(names: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield columns of these fields; a line that is not an object goes to `_corrupt_record`."""
    for batch in batches:
        rows = [_row(line) for line in batch.column(0).to_pylist()]
        columns = [pa.array([row.get(name) for row in rows], pa.string()) for name in (*names, CORRUPT)]
        yield pa.record_batch(columns, names=[*names, CORRUPT])


def _row(line: str) -> dict[str, str | None]:
    try:
        return fields(line)
    except (ValueError, IndexError, RecursionError):
        return {CORRUPT: line}


def fields(line: str) -> dict[str, str | None]:
    """Return the fields of an object: the content of strings, None for null, everything else as it is written.

    Raises:
        ValueError: the line is not an object.
        IndexError: it ends too early.
    """
    found: dict[str, str | None] = {}
    at = _after(line, 0, "{")
    if line[at] == "}":
        return _ended(found, line, at)
    while True:
        if line[at] != '"':
            raise ValueError("expected a name")
        name, at = DECODER.raw_decode(line, at)
        at = _after(line, _skip(line, at), ":")
        value, end = DECODER.raw_decode(line, at)
        found[name] = value if value is None or isinstance(value, str) else line[at:end]
        at = _skip(line, end)
        if line[at] == "}":
            return _ended(found, line, at)
        at = _after(line, at, ",")


def _ended(found: dict[str, str | None], line: str, at: int) -> dict[str, str | None]:
    if _skip(line, at + 1) < len(line):
        raise ValueError("there is more than one value")
    return found


def _after(line: str, at: int, mark: str) -> int:
    start = _skip(line, at)
    if line[start] != mark:
        raise ValueError(f"expected {mark}")
    return _skip(line, start + 1)


def _skip(line: str, at: int) -> int:
    found = _BLANK.match(line, at)
    return found.end() if found else at
