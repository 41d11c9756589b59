"""One slice of a batch: writes the rows between two positions of the archive to files of the lake.

This runs on executors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from psycopg.sql import Identifier

from pgrouse.client.queries.pipeline.row import EVERYTHING, Scope, between, select_rows
from pyspark_pgrouse.connection.connection import arrow
from pyspark_pgrouse.lake.columns import ArchiveColumn, arrow_schema
from pyspark_pgrouse.lake.data_file import DataFile
from pyspark_pgrouse.lake.directory import Directory
from pyspark_pgrouse.lake.writer import LakeWriter
from pyspark_pgrouse.read.position import Position

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ExportSlice:
    """A part of a batch. batch: a part of the names of its files; start is exclusive, end inclusive."""

    batch: str
    index: int
    start: Position
    end: Position


@dataclass(frozen=True)
class ExportSource:
    """The source of all slices of an export.

    Attributes:
        dsn: the connection string of the database; None = the environment.
        columns: the columns to read.
        partition_by: the columns by which the lake is partitioned.
        scope: the condition on rows.
    """

    dsn: str | None = field(repr=False)
    columns: tuple[ArchiveColumn, ...]
    partition_by: tuple[str, ...]
    scope: Scope = EVERYTHING

    def query(self, part: ExportSlice) -> str:
        """Return the statement that reads a slice. Its conditions are those of the index that each day has."""
        columns = ", ".join(f"{c.sql} AS {_quoted(c.name)}" for c in self.columns)
        return select_rows(
            "message_archive", columns, f"{between(part.start.key, part.end.key)} AND {self.scope.sql()}"
        )

    def read(self, part: ExportSlice) -> Iterator[pa.RecordBatch]:
        """Read a slice."""
        return arrow(self.dsn, self.query(part))


def write_slice(source: ExportSource, directory: Directory, part: ExportSlice) -> list[DataFile]:
    """Write a slice into the lake; return the files. If it fails, it leaves no files.

    Raises:
        LakeUnwritable: the disk is full, or the store fails.
        DatabaseUnreachable: no connection could be made.
    """
    stem = f"part-{part.index:05}-{part.batch}"
    writer = LakeWriter(directory, stem, arrow_schema(source.columns), source.partition_by)
    with writer:
        for rows in source.read(part):
            writer.write(rows)
    return writer.files


def _quoted(name: str) -> str:
    return Identifier(name).as_string(None)
