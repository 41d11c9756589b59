"""A commit of a lake: the files that it adds and removes, as one JSON document."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import date, datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any
from urllib.parse import quote

LONGEST = 200  # of an escaped topic: directories have names of at most 255 bytes


class CommitKind(StrEnum):
    """What a commit does."""

    EXPORT = "export"
    COMPACTION = "compaction"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class LakeColumn:
    """A column of the lake. type: as Arrow writes it: int64, string, binary, timestamp[us, tz=UTC]."""

    name: str
    type: str


@dataclass(frozen=True)
class DataFile:
    """A Parquet file.

    Attributes:
        path: from the root of the lake, with `/`.
        date: the day of `archived_at` (UTC) of all its rows.
        topic: of all its rows.
        rows: how many.
        bytes: how big the file is.
    """

    path: str
    date: date
    topic: str
    rows: int
    bytes: int

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> DataFile:
        """Read it as a manifest has it."""
        return cls(said["path"], date.fromisoformat(said["date"]), said["topic"], said["rows"], said["bytes"])


@dataclass(frozen=True)
class Manifest:
    """One commit.

    Attributes:
        number: commits are numbered from 1, without gaps.
        change: what it does.
        committed_at: by the clock of who wrote it.
        start: the offset after which its rows begin; None = it brings no new rows.
        end: the offset of its last row; None likewise.
        columns: those of the files that it adds.
        add: files that are there from this commit on.
        remove: paths of files that are not there any more.
    """

    number: int
    change: CommitKind
    committed_at: datetime
    start: dict[str, Any] | None
    end: dict[str, Any] | None
    columns: tuple[LakeColumn, ...]
    add: tuple[DataFile, ...]
    remove: tuple[str, ...]

    @property
    def rows(self) -> int:
        """How many rows its files have."""
        return sum(f.rows for f in self.add)

    def as_json(self) -> str:
        """Write it as the file does."""
        return json.dumps(asdict(self), default=lambda value: value.isoformat(), indent=1)

    @classmethod
    def from_json(cls, text: bytes) -> Manifest:
        """Read it."""
        said = json.loads(text)
        return cls(
            number=said["number"],
            change=CommitKind(said["change"]),
            committed_at=datetime.fromisoformat(said["committed_at"]),
            start=said["start"],
            end=said["end"],
            columns=tuple(LakeColumn(**column) for column in said["columns"]),
            add=tuple(map(DataFile.from_dict, said["add"])),
            remove=tuple(said["remove"]),
        )


def folder(day: date, topic: str) -> str:
    """Return the directory of a partition. What file systems and Hive do not take as it is (a colon) is escaped, as in a URL.

    A name too long for a directory is cut and gets a digest: the topic itself is in the manifest and in the file.
    """
    escaped = quote(topic, safe="")
    if len(escaped) > LONGEST:
        escaped = f"{escaped[:LONGEST]}~{sha256(topic.encode()).hexdigest()[:16]}"
    return f"date={day.isoformat()}/topic={escaped}"
