"""An export: batches of the archive go into a lake, each exactly once, whatever is killed when.

A batch is done in three steps: write its files, under new names; commit them to the Delta table, with the position that they reach; move the
cursor in the database. Killed before the commit, the batch never was: the next run writes it again, and a vacuum removes what was left. Killed
after it, the next run only moves the cursor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pgrouse.errors import ConfigError
from pyspark_pgrouse import position as positions
from pyspark_pgrouse.lake.columns import ColumnChoice, archive_columns, arrow_schema
from pyspark_pgrouse.lake.cursor import ExportConflict, ExportCursor
from pyspark_pgrouse.lake.data_file import DataFile
from pyspark_pgrouse.lake.directory import Directory
from pyspark_pgrouse.lake.lake import Lake, LakeInfo
from pyspark_pgrouse.lake.slice import ExportSlice, ExportSource, write_slice
from pyspark_pgrouse.position import Position
from pyspark_pgrouse.read.scope import Scope, literal

if TYPE_CHECKING:
    import psycopg

# Of one slice: a task that has less to do than this is not worth starting.
LEAST_ROWS = 25_000

# A plan that is right for an empty archive is wrong for a full one.
SETTINGS = "SET enable_seqscan = off; SET enable_sort = off; SET jit = off"
# What the planner thinks is left: good enough for a progress bar.
# More are not counted: who reads the number wants to know that there are many.
MOST_WAITING = 1_000_000
WAITING = """
    SELECT count(*)
    FROM (
      SELECT FROM messages.message_archive AS a
      WHERE (a.archive_xid, a.id) > (%(xid)s::xid8, %(id)s) AND {scope}
      LIMIT %(most)s) AS w"""
LEFT = """
    EXPLAIN (FORMAT JSON)
    SELECT FROM messages.message_archive AS a WHERE a.archive_xid >= %(xid)s::xid8 AND {since}"""

Run = Callable[[Callable[[ExportSlice], list[DataFile]], Sequence[ExportSlice]], list[list[DataFile]]]


@dataclass(frozen=True)
class ExportOptions:
    """What an export is asked for.

    Attributes:
        name: of the export; its cursor bears it.
        batch_rows: how many rows a batch has at most.
        topics: the only ones; empty = all. A lake has the same ones for ever.
        since: from when on; None = everything. Likewise.
        choice: which columns. Likewise.
    """

    name: str = "default"
    batch_rows: int = 1_000_000
    topics: tuple[str, ...] = ()
    since: datetime | None = None
    choice: ColumnChoice = field(default_factory=ColumnChoice)


@dataclass(frozen=True)
class ExportBatch:
    """A planned batch. start is exclusive, end inclusive."""

    start: Position
    end: Position
    slices: tuple[ExportSlice, ...]


@dataclass(frozen=True)
class ExportCommit:
    """A batch that was committed. version: of the table."""

    version: int
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(file.rows for file in self.files)


@dataclass
class Export:
    """An export at work.

    Attributes:
        conn: to the database; anyone who holds the export holds it by this connection.
        lake: where it writes to.
        options: what is asked for.
        source: what its slices read.
        cursor: how far it is.
    """

    conn: psycopg.Connection[Any]
    lake: Lake
    options: ExportOptions
    source: ExportSource
    cursor: ExportCursor

    @classmethod
    def begin(cls, conn: psycopg.Connection[Any], dsn: str | None, url: str, options: ExportOptions) -> Export:
        """Open the lake, or make it, and go on where its last batch ended. Only one process may do so at a time.

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
        return cls(conn, lake, options, ExportSource(dsn, columns, scope), cursor)

    def rows_left(self) -> int:
        """Return about how many rows there are to write."""
        asked = LEFT.format(since=self._since)
        row: Any = self.conn.execute(asked, {"xid": self.cursor.position.xid}).fetchone()
        return int(row[0][0]["Plan"]["Plan Rows"])

    def rows_waiting(self) -> int:
        """Return how many rows are there that no batch has, because a transaction may still add some before them; at most a million."""
        at = self.cursor.position
        asked = WAITING.format(scope=self.source.scope.sql().replace("%", "%%"))
        row: Any = self.conn.execute(asked, {"xid": at.xid, "id": at.id, "most": MOST_WAITING}).fetchone()
        return int(row[0])

    def batches(self, run: Run, partitions: int) -> Iterator[ExportCommit]:
        """Write what there is below the watermark of now, batch by batch; yield each when it is committed.

        Args:
            run: how slices are run: see `executors.on_executors`.
            partitions: into how many slices a batch is split at most.
        """
        watermark = positions.watermark(self.conn)
        while batch := self.plan(watermark, partitions):
            yield self.write(batch, run)

    def plan(self, watermark: str, partitions: int) -> ExportBatch | None:
        """Return the next batch below a watermark; None if nothing is there."""
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

    def write(self, batch: ExportBatch, run: Run) -> ExportCommit:
        """Write a batch and commit it.

        Raises:
            ExportConflict: another process wrote this batch, or gave the export up.
            LakeUnwritable: the disk is full, or the store fails. What the batch had written is removed.
        """
        directory, source = self.lake.directory, self.source
        try:
            written = run(lambda part: write_slice(source, directory, part), batch.slices)
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

    @property
    def _since(self) -> str:
        since = self.lake.info.since
        return f"a.archived_at >= {literal(since)}".replace("%", "%%") if since else "TRUE"


def _opened(conn: psycopg.Connection[Any], directory: Directory, options: ExportOptions) -> Lake:
    system = positions.system_identifier(conn)
    lake = Lake.find(directory)
    if lake is not None:
        _check(lake.info, directory.url, system, options)
        return lake
    schema = arrow_schema(archive_columns(conn, options.choice))
    if cursor := ExportCursor.find(conn, options.name):
        raise _elsewhere(cursor, directory.url)
    return Lake.make(directory, LakeInfo(options.name, system, options.topics, options.since, options.choice), schema)


def _elsewhere(cursor: ExportCursor, url: str) -> ConfigError:
    return ConfigError(
        f"export {cursor.name} writes to another lake, {cursor.lake}: use another --name for {url}, "
        f"or give that one up with --forget {cursor.name}"
    )


def _check(info: LakeInfo, url: str, system: str, options: ExportOptions) -> None:
    if info.system_identifier != system:
        raise ConfigError(
            f"the lake {url} holds the archive of another cluster ({info.system_identifier}; this one is {system}): "
            f"name another lake; if this database was restored from that one, first give the export up with --forget {info.name}"
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
            f"the lake {url} was made with {_choice(info)}: leave --columns, --exclude and --mask out, or name another lake"
        )


def _topics(info: LakeInfo) -> str:
    return f"--topics {','.join(info.topics)}" if info.topics else "all topics"


def _choice(info: LakeInfo) -> str:
    given = {"columns": info.choice.only, "exclude": info.choice.exclude, "mask": info.choice.mask}
    return " ".join(f"--{name} {','.join(names)}" for name, names in given.items() if names) or "all columns"


def _reconciled(conn: psycopg.Connection[Any], lake: Lake, name: str) -> ExportCursor:
    """Open the cursor where the lake ends; after a crash between the two, move it there."""
    url, end = lake.directory.url, lake.position
    positions.check_cluster(conn, end)
    cursor = ExportCursor.opened(conn, name, url, lake.id, end)
    if cursor.lake_id != lake.id:
        raise _elsewhere(cursor, url)
    if _order(cursor.position) > _order(end):
        raise ConfigError(
            f"the lake {url} lacks what export {name} had written: restore all of it, or give the export up with --forget {name} "
            "and begin a new lake with what the database still has"
        )
    return cursor if cursor.position == end else cursor.advance(conn, end)


def _order(position: Position) -> tuple[int, int]:
    return int(position.xid), position.id
