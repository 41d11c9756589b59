"""Writes rows to Parquet files, separate files for each partition, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import date
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_pgrouse.lake.columns import PARTITIONINGS
from pyspark_pgrouse.lake.data_file import DataFile, folder, statistics
from pyspark_pgrouse.lake.directory import Directory
from pyspark_pgrouse.read.times import representable

COMPRESSION = "zstd"
# Readers skip or read a row group as a whole.
GROUP_ROWS = 131_072
GROUP_BYTES = 64 * 1024 * 1024
# How much is read before it is split by partition: splitting every few rows would cost more than writing them.
GATHER_BYTES = 32 * 1024 * 1024
# How much may wait in memory for its row group, in all partitions together.
WAITING_BYTES = 256 * 1024 * 1024
# How many files are open at a time. If the file of a partition must be closed, the partition continues in another file.
OPEN_FILES = 64

# The values by which a lake is partitioned, in the order of its columns.
Partition = tuple[date | str, ...]


@dataclass
class _Waiting:
    """Rows of one partition that are not written yet."""

    parts: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0


class _File:
    """A Parquet file that is being written."""

    def __init__(self, directory: Directory, path: str, schema: pa.Schema) -> None:
        self.path = path
        self.bytes = 0
        self._scope = ExitStack()
        self._metadata: list[Any] = []
        self._parquet: Any = None
        self._stream = self._scope.enter_context(directory.sink(path))
        try:
            self._parquet = pq.ParquetWriter(
                self._stream, schema, compression=COMPRESSION, metadata_collector=self._metadata
            )
        except BaseException as error:
            self.discard(error)
            raise

    def write(self, rows: pa.Table) -> None:
        """Write one row group."""
        self._parquet.write_table(rows, row_group_size=max(rows.num_rows, 1))

    def close(self, partition: Mapping[str, str]) -> DataFile:
        """Complete the file, and return its description."""
        try:
            self._parquet.close()
            self.bytes = self._stream.tell()
        except BaseException as error:
            self.discard(error)
            raise
        self._scope.close()
        (parquet,) = self._metadata
        return DataFile(self.path, partition, parquet.num_rows, self.bytes, statistics(parquet))

    def discard(self, error: BaseException) -> None:
        """Remove the file. An error of the store is raised with its explanation."""
        if self._parquet is not None:
            with suppress(Exception):
                self._parquet.close()
            # Otherwise the writer would try again to write the rest when it is garbage-collected.
            self._parquet.is_open = False
        self._scope.__exit__(type(error), error, error.__traceback__)


class LakeWriter:
    """Writes the files of one slice. If its context ends without an error, all files exist; with an error, none does.

    Attributes:
        files: the files that were written.
    """

    def __init__(
        self, directory: Directory, stem: str, schema: pa.Schema, partition_by: tuple[str, ...] = PARTITIONINGS[0]
    ) -> None:
        """Begin.

        Args:
            directory: the directory of the lake.
            stem: the beginning of the names of its files. The rest of a name differs from those of every other attempt.
            schema: the schema of the rows; `date` and `topic` are among them.
            partition_by: the columns by which the lake is partitioned. Without `topic`, the rows of each row group are
                sorted by it.
        """
        self.files: list[DataFile] = []
        self._directory = directory
        self._stem = f"{stem}-{uuid4().hex[:12]}"
        self._schema = schema
        # Readers get the columns of the partition from the log.
        self._in_files = pa.schema([field for field in schema if field.name not in partition_by])
        self._partition_by = partition_by
        self._gathered: list[pa.RecordBatch] = []
        self._waiting: dict[Partition, _Waiting] = {}
        self._open: dict[Partition, _File] = {}
        self._begun = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if error is None:
                self._finish()
        except BaseException as late:
            self._discard(late)
            raise
        if error is not None:
            self._discard(error)

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows. They are written once there are enough for a row group."""
        self._gathered.append(self._as_in_files(rows))
        if sum(each.nbytes for each in self._gathered) >= GATHER_BYTES:
            self._sort_out()

    def _sort_out(self) -> None:
        """Split the gathered rows by partition, and write those that are enough for a row group."""
        gathered, self._gathered = self._gathered, []
        for partition, part in _partitioned(gathered, self._partition_by):
            waiting = self._waiting.setdefault(partition, _Waiting())
            waiting.parts.append(part)
            waiting.rows += part.num_rows
            waiting.bytes += part.nbytes
            if waiting.rows >= GROUP_ROWS or waiting.bytes >= GROUP_BYTES:
                self._flush(partition)
        while sum(w.bytes for w in self._waiting.values()) > WAITING_BYTES:
            self._flush(max(self._waiting, key=lambda p: self._waiting[p].bytes))

    def _as_in_files(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = [representable(rows.column(f.name)).cast(f.type) for f in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _flush(self, partition: Partition) -> None:
        waiting = self._waiting.pop(partition)
        rows = pa.concat_tables(waiting.parts).select(self._in_files.names)
        self._file(partition).write(rows.sort_by("topic") if "topic" in rows.column_names else rows)

    def _file(self, partition: Partition) -> _File:
        if partition not in self._open:
            if len(self._open) >= OPEN_FILES:
                self._close(next(iter(self._open)))
            path = f"{folder(self._named(partition))}/{self._stem}-c{self._begun:03}.{COMPRESSION}.parquet"
            self._begun += 1
            self._open[partition] = _File(self._directory, path, self._in_files)
        return self._open[partition]

    def _close(self, partition: Partition) -> None:
        self.files.append(self._open.pop(partition).close(self._named(partition)))

    def _named(self, partition: Partition) -> dict[str, str]:
        return dict(zip(self._partition_by, map(str, partition), strict=True))

    def _finish(self) -> None:
        self._sort_out()
        for partition in list(self._waiting):
            self._flush(partition)
            # Most partitions are small: their files need not be open at the same time.
            self._close(partition)
        for partition in list(self._open):
            self._close(partition)

    def _discard(self, error: BaseException) -> None:
        with ExitStack() as all_of_them:
            all_of_them.callback(self._directory.remove, [f.path for f in self.files])
            for file in self._open.values():
                all_of_them.callback(file.discard, error)


def _partitioned(batches: list[pa.RecordBatch], partition_by: tuple[str, ...]) -> Iterator[tuple[Partition, pa.Table]]:
    """Split rows by partition. In each part they keep their order, and share no memory with other parts."""
    batches = [batch for batch in batches if batch.num_rows]
    if not batches:
        return
    # The system pool releases memory later than Arrow's default pool. Requesting it again each time would take as long
    # as writing the rows.
    pool = pa.system_memory_pool()
    rows = pa.Table.from_batches(batches).combine_chunks(memory_pool=pool)
    keys = rows.column("date").cast(pa.int32()).to_numpy().astype(np.int64)
    if "topic" in partition_by:
        topics = rows.column("topic").combine_chunks().dictionary_encode()
        keys = keys * len(topics.dictionary) + topics.indices.to_numpy()
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=keys[order[0]] - 1))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        chosen = order[start:end]
        first = int(chosen[0])
        part = (
            rows
            if len(chosen) == rows.num_rows
            else pc.take(rows, pa.array(chosen), boundscheck=False, memory_pool=pool)
        )
        yield tuple(rows.column(name)[first].as_py() for name in partition_by), part
