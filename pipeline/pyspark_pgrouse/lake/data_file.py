"""A Parquet file as the log of a Delta table describes it.

It has a partition, a size, and the statistics by which readers skip it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from deltalake.transaction import AddAction

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData, Statistics

# Columns by which readers may skip files. The log has the minimum and maximum of each in each file.
STATISTICS = (
    "id", "topic", "key", "channel", "created_at", "result", "error_fingerprint", "handled_by", "archived_at",
    "archive_xid",
)  # fmt: skip
LONGEST_VALUE = 32  # the longest text in the statistics
GREATEST = "\U0010ffff"
LONGEST_NAME = 200  # the longest escaped topic: directory names have at most 255 bytes


@dataclass(frozen=True)
class DataFile:
    """A Parquet file.

    Attributes:
        path: from the root of the lake, with `/`.
        partition: the day of `archived_at` (UTC) of all its rows, and their topic if the lake is partitioned by it: as
            the log has them.
        rows: how many rows it has.
        bytes: the size of the file.
        statistics: its statistics for the log, as JSON.
    """

    path: str
    partition: Mapping[str, str]
    rows: int
    bytes: int
    statistics: str

    def as_action(self) -> AddAction:
        """Return the action that adds it to a table."""
        now_ms = int(datetime.now(UTC).timestamp() * 1000)
        return AddAction(self.path, self.bytes, dict(self.partition), now_ms, True, self.statistics)


def folder(partition: Mapping[str, str]) -> str:
    """Return the directory of a partition.

    Characters that file systems and Hive do not accept (a colon) are escaped, as in a URL.

    A name too long for a directory is cut and gets a digest: the topic itself is in the log.
    """
    return "/".join(f"{name}={_escaped(value)}" for name, value in partition.items())


def is_cut(value: str) -> bool:
    """Return whether the name of the directory of this value is cut."""
    return len(quote(value, safe="")) > LONGEST_NAME


def _escaped(value: str) -> str:
    escaped = quote(value, safe="")
    return f"{escaped[:LONGEST_NAME]}~{sha256(value.encode()).hexdigest()[:16]}" if is_cut(value) else escaped


def statistics(parquet: FileMetaData) -> str:
    """Return the statistics of a file for the log.

    Each column has bounds, unless it is NULL everywhere: without bounds, deltalake 1.6 tells pyarrow that nothing can
    be found.
    """
    names = [parquet.schema.column(n).name for n in range(parquet.num_columns)]
    said: dict[str, Any] = {"numRecords": parquet.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for number, name in enumerate(names):
        if name in STATISTICS:
            groups = [parquet.row_group(n).column(number).statistics for n in range(parquet.num_row_groups)]
            said["nullCount"][name] = sum(group.null_count for group in groups)
            if there := [group for group in groups if group.num_values]:
                said["minValues"][name], said["maxValues"][name] = _bounds(there)
    # Some readers take an escaped character beyond U+FFFF for another character.
    return json.dumps(said, ensure_ascii=False)


def _bounds(groups: Sequence[Statistics]) -> tuple[Any, Any]:
    if not all(group.has_min_max for group in groups):
        return "", GREATEST * LONGEST_VALUE  # Parquet has no bounds for very long text
    least, greatest = min(group.min for group in groups), max(group.max for group in groups)
    if isinstance(least, datetime):
        # The log has milliseconds.
        return _moment(least), _moment(greatest + timedelta(microseconds=999))
    return (least[:LONGEST_VALUE], _above(greatest)) if isinstance(least, str) else (least, greatest)


def _above(text: str) -> str:
    """Return a short text that is above every text with the same beginning."""
    if len(text) <= LONGEST_VALUE:
        return text
    end = next((n for n in range(LONGEST_VALUE, len(text)) if text[n] != GREATEST), len(text))
    return text[:end] + GREATEST


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
