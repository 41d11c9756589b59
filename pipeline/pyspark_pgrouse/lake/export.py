"""An export: writes batches of the archive to a lake, each exactly once, whatever is killed at any time.

A batch has three steps: write its files, under new names; commit them to the Delta table, together with the position
that they reach; move the cursor in the database. If it is killed before the commit, the next run writes the batch
again, and a vacuum removes the old files. If it is killed after the commit, the next run only moves the cursor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pgrouse.client.call import run
from pgrouse.client.calls.export import list_exports
from pgrouse.client.queries.pipeline.archive_row import count_topics, estimate_rows_from
from pgrouse.client.queries.pipeline.row import Scope
from pgrouse.errors import ConfigError
from pyspark_pgrouse.lake.columns import PARTITIONINGS, ColumnChoice, archive_columns, arrow_schema
from pyspark_pgrouse.lake.cursor import ExportConflict, ExportCursor
from pyspark_pgrouse.lake.data_file import DataFile
from pyspark_pgrouse.lake.directory import Directory
from pyspark_pgrouse.lake.lake import Lake, LakeInfo
from pyspark_pgrouse.lake.slice import ExportSlice, ExportSource, write_slice
from pyspark_pgrouse.read import position as positions
from pyspark_pgrouse.read.position import Position

if TYPE_CHECKING:
    import psycopg

# The minimum of one slice: a task with fewer rows is not worth starting.
LEAST_ROWS = 25_000
# From here on a file for each topic costs more than what readers of one topic save.
MANY_TOPICS = 20

# A plan that is good for an empty archive is bad for a full one.
SETTINGS = "SET enable_seqscan = off; SET enable_sort = off; SET jit = off"
Run = Callable[[Callable[[ExportSlice], list[DataFile]], Sequence[ExportSlice]], list[list[DataFile]]]


@dataclass(frozen=True)
class ExportOptions:
    """The options of an export.

    Attributes:
        name: the name of the export and of its cursor.
        batch_rows: the maximum number of rows of a batch.
        topics: only these; empty = all. This is fixed for the lifetime of a lake.
        since: only what was archived from then on; None = everything. This is fixed, too.
        choice: the columns. This is fixed, too.
        partition_by: the columns by which the lake is partitioned. This is fixed, too; None = a new lake is
            partitioned by topic unless the archive has more than `MANY_TOPICS`.
    """

    name: str = "default"
    batch_rows: int = 1_000_000
    topics: tuple[str, ...] = ()
    since: datetime | None = None
    choice: ColumnChoice = field(default_factory=ColumnChoice)
    partition_by: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ExportBatch:
    """A planned batch. start is exclusive, end inclusive."""

    start: Position
    end: Position
    slices: tuple[ExportSlice, ...]


@dataclass(frozen=True)
class ExportCommit:
    """A committed batch. version: the version of the table."""

    version: int
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(file.rows for file in self.files)


@dataclass
class Export:
    """A running export.

    Attributes:
        conn: the connection to the database; it holds the lock of the export.
        lake: the lake that it writes to.
        options: the options.
        source: the source of its slices.
        cursor: how far it is.
    """

    conn: psycopg.Connection[Any]
    lake: Lake
    options: ExportOptions
    source: ExportSource
    cursor: ExportCursor

    @classmethod
    def begin(cls, conn: psycopg.Connection[Any], dsn: str | None, url: str, options: ExportOptions) -> Export:
        """Open the lake, or create it, and continue where its last batch ended. Only one process may do so at a time.

        Raises:
            ConfigError: the lake and the export, or this database, do not belong together; the text says what to do.
            SchemaMismatch: the schema is too old.
            LakeUnwritable: the lake fails.
        """
        conn.execute(SETTINGS)
        lake = _opened(conn, Directory.at(url), options)
        columns = archive_columns(conn, lake.info.choice, lake.schema)
        cursor = _reconciled(conn, lake, options.name)
        scope = Scope(topics=lake.info.topics, since=lake.info.since)
        return cls(conn, lake, options, ExportSource(dsn, columns, lake.partition_by, scope), cursor)

    def rows_left(self) -> int:
        """Return about how many rows remain to be written."""
        since = Scope(since=self.lake.info.since).sql()
        return run(self.conn, estimate_rows_from(self.cursor.position.xid, since))

    def batches(self, run_slices: Run, partitions: int) -> Iterator[ExportCommit]:
        """Write all rows below the current watermark, batch by batch; yield each batch when it is committed.

        Args:
            run_slices: runs slices: see `executors.on_executors`.
            partitions: into how many slices a batch is split at most.
        """
        watermark = positions.watermark(self.conn)
        while batch := self.plan(watermark, partitions):
            yield self.write(batch, run_slices)

    def plan(self, watermark: str, partitions: int) -> ExportBatch | None:
        """Return the next batch below a watermark; None if there are no rows."""
        start, rows = self.cursor.position, self.options.batch_rows
        slice_rows = max(math.ceil(rows / partitions), LEAST_ROWS)
        batch = uuid4().hex
        slices: list[ExportSlice] = []
        for planned in range(0, rows, slice_rows):
            begin = slices[-1].end if slices else start
            limit = min(slice_rows, rows - planned)
            end = positions.next_end(self.conn, begin, limit, 0, watermark, Scope(since=self.lake.info.since))
            if end is None:
                break
            slices.append(ExportSlice(batch, len(slices), begin, end))
        return ExportBatch(start, slices[-1].end, tuple(slices)) if slices else None

    def write(self, batch: ExportBatch, run_slices: Run) -> ExportCommit:
        """Write a batch and commit it.

        Raises:
            ExportConflict: another process wrote this batch, or deleted the export.
            LakeUnwritable: the disk is full, or the store fails. The files of the batch were removed.
        """
        directory, source = self.lake.directory, self.source
        try:
            written = run_slices(lambda part: write_slice(source, directory, part), batch.slices)
        except Exception:
            directory.remove(directory.find(batch.slices[0].batch))
            raise
        files = tuple(file for part in written for file in part)
        self._check_visible(files)
        if not self.lake.commit(files, arrow_schema(source.columns), batch.start, batch.end):
            raise ExportConflict(
                f"rows of {directory.url} were committed by another process: run it again if it is still wanted"
            )
        self.cursor = self.cursor.advance(self.conn, batch.end)
        return ExportCommit(self.lake.table.version(), files)

    def _check_visible(self, files: tuple[DataFile, ...]) -> None:
        directory = self.lake.directory
        for file in files if directory.is_local else ():
            if directory.size(file.path) != file.bytes:
                raise ConfigError(
                    f"{directory.full(file.path)} was written by an executor, but is not there for the driver: "
                    "use a lake that all machines see, as a shared file system or s3a://"
                )


def _opened(conn: psycopg.Connection[Any], directory: Directory, options: ExportOptions) -> Lake:
    queue = positions.queue_identifier(conn)
    lake = Lake.find(directory)
    if lake is not None:
        _check(lake.info, directory.url, queue, options)
        _check_partitioning(lake, options)
        return lake
    schema = arrow_schema(archive_columns(conn, options.choice))
    for export in run(conn, list_exports()):
        if export.name == options.name:
            raise _elsewhere(export.name, export.lake, directory.url)
    info = LakeInfo(options.name, queue, options.topics, options.since, options.choice)
    return Lake.make(directory, info, schema, options.partition_by or _partitioning(conn, options))


def _partitioning(conn: psycopg.Connection[Any], options: ExportOptions) -> tuple[str, ...]:
    """Choose how a new lake is partitioned: each commit has a file for each topic if it is partitioned by topic."""
    scope = Scope(topics=options.topics, since=options.since).sql()
    return PARTITIONINGS[run(conn, count_topics(scope)) > MANY_TOPICS]


def _elsewhere(name: str, lake: str, url: str) -> ConfigError:
    return ConfigError(
        f"export {name} writes to another lake, {lake}: use another --name for {url}, "
        f"or give that one up with --forget {name}"
    )


def _check(info: LakeInfo, url: str, queue: str, options: ExportOptions) -> None:
    if info.queue != queue:
        raise ConfigError(
            f"the lake {url} holds the archive of another queue ({info.queue}; this one is {queue}): "
            "name another lake; if this queue was restored from that one, first give the export up with "
            f"--forget {info.name}"
        )
    if info.name != options.name:
        raise ConfigError(f"the lake {url} is written by export {info.name}: use --name {info.name}, or another lake")
    if options.topics and set(options.topics) != set(info.topics):
        raise ConfigError(f"the lake {url} was made for {_topics(info)}: leave --topics out, or name another lake")
    if options.since and options.since != info.since:
        since = info.since.isoformat() if info.since else "the beginning"
        raise ConfigError(
            f"the lake {url} was made with what ended since {since}: leave --since out, or name another lake"
        )
    if options.choice not in (ColumnChoice(), info.choice):
        raise ConfigError(
            f"the lake {url} was made with {_choice(info)}: leave --columns, --exclude and --mask out, "
            "or name another lake"
        )


def _check_partitioning(lake: Lake, options: ExportOptions) -> None:
    if options.partition_by not in (None, lake.partition_by):
        raise ConfigError(
            f"the lake {lake.directory.url} was made with --partition-by {','.join(lake.partition_by)}: "
            "leave --partition-by out, or name another lake"
        )


def _topics(info: LakeInfo) -> str:
    return f"--topics {','.join(info.topics)}" if info.topics else "all topics"


def _choice(info: LakeInfo) -> str:
    given = {"columns": info.choice.only, "exclude": info.choice.exclude, "mask": info.choice.mask}
    return " ".join(f"--{name} {','.join(names)}" for name, names in given.items() if names) or "all columns"


def _reconciled(conn: psycopg.Connection[Any], lake: Lake, name: str) -> ExportCursor:
    """Open the cursor where the lake ends.

    After a crash between a commit and the move of the cursor, move the cursor there.
    """
    url, end = lake.directory.url, lake.position
    positions.check_queue(conn, end)
    cursor = ExportCursor.opened(conn, name, url, lake.id, end)
    if cursor.lake_id != lake.id:
        raise _elsewhere(name, cursor.lake, url)
    if _order(cursor.position) > _order(end):
        raise ConfigError(
            f"the lake {url} lacks what export {name} had written: restore all of it, "
            f"or give the export up with --forget {name} "
            "and begin a new lake with what the database still has"
        )
    return cursor if cursor.position == end else cursor.advance(conn, end)


def _order(position: Position) -> tuple[int, int]:
    return int(position.xid), position.id
