"""A lake: the archive as a Delta table, partitioned by date, and by topic unless there are many.

    LAKE/_delta_log/<version, 20 digits>.json
        one commit: the files that it adds and removes. A file that no commit names is not there
    LAKE/date=YYYY-MM-DD/topic=<escaped>/part-<slice>-<batch>-<attempt>-c<n>.zstd.parquet

Dates are those of `archived_at` in UTC. Each commit of an export records in two application transactions,
`<export>.archive_xid` and `<export>.id`, up to which row of the archive the table is complete; the log always keeps the
newest of each. The properties of the table hold the options of the first export.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError

from pgrouse.errors import ConfigError
from pyspark_pgrouse.lake.columns import PARTITIONINGS, ColumnChoice
from pyspark_pgrouse.lake.data_file import STATISTICS, DataFile
from pyspark_pgrouse.lake.directory import Directory
from pyspark_pgrouse.lake.frame import frame
from pyspark_pgrouse.read.position import Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG = "_delta_log"
# The number of commits between checkpoints; a reader begins at the newest checkpoint.
CHECKPOINT_INTERVAL = 20
# How often a commit is tried while other processes change the table.
COMMIT_ATTEMPTS = 5


@dataclass(frozen=True)
class LakeInfo:
    """The description of a lake, written once when it is created, in the properties of its table.

    Attributes:
        name: the name of the export that writes it.
        queue: the queue whose archive it holds, from `queue_identifier`.
        topics: only these topics; empty = all.
        since: it holds what was archived at or after this; None = everything.
        choice: the columns that it has.
    """

    name: str
    queue: str
    topics: tuple[str, ...] = ()
    since: datetime | None = None
    choice: ColumnChoice = field(default_factory=ColumnChoice)

    def as_properties(self) -> dict[str, str]:
        """Return it as properties of the table."""
        lists = {
            "topics": self.topics,
            "columns": self.choice.only,
            "exclude": self.choice.exclude,
            "mask": self.choice.mask,
        }
        plain = {"export": self.name, "queue": self.queue}
        since = {"since": self.since.isoformat()} if self.since else {}
        said = plain | since | {name: json.dumps(values) for name, values in lists.items() if values}
        return {f"pgrouse.{name}": value for name, value in said.items()}

    @classmethod
    def from_properties(cls, properties: dict[str, str]) -> LakeInfo:
        """Read it."""

        def names(of: str) -> tuple[str, ...]:
            return tuple(json.loads(properties.get(f"pgrouse.{of}", "[]")))

        since = properties.get("pgrouse.since")
        return cls(
            properties["pgrouse.export"],
            properties["pgrouse.queue"],
            names("topics"),
            datetime.fromisoformat(since) if since else None,
            ColumnChoice(names("columns"), names("exclude"), names("mask")),
        )


@dataclass(frozen=True)
class Lake:
    """An existing lake.

    Attributes:
        directory: its place.
        info: its description.
        table: the table as last read: see `refresh`.
    """

    directory: Directory
    info: LakeInfo
    table: DeltaTable

    @classmethod
    def open(cls, url: str, options: Mapping[str, str] | None = None) -> Lake:
        """Open a lake: a path, or a URL of `s3a`, `gs`, `abfss` or any other scheme that delta-rs knows.

        Args:
            url: the URL or path.
            options: options of the store, in addition to those in the environment (`storage_options` of delta-rs).

        Raises:
            ConfigError: there is none, or it cannot be read.
        """
        lake = cls.find(Directory.at(url, options or {}))
        if lake is None:
            raise ConfigError(f"there is no lake in {url}: make one with `pgrouse pipeline export {url}`")
        return lake

    @classmethod
    def find(cls, directory: Directory) -> Lake | None:
        """Return the lake in a directory; None if there is none.

        Raises:
            ConfigError: the directory has another Delta table.
        """
        with directory.explained("read"):
            if not DeltaTable.is_deltatable(directory.url, directory.options):
                return None
            table = DeltaTable(directory.url, storage_options=directory.options)
        properties = table.metadata().configuration
        if "pgrouse.queue" not in properties:
            raise ConfigError(f"the Delta table {directory.url} was not made by an export: name another directory")
        if properties.get("delta.columnMapping.mode", "none") != "none":
            # deltalake would write and read NULL.
            raise ConfigError(
                f"the lake {directory.url} has delta.columnMapping.mode, which deltalake does not support: "
                "begin a new lake"
            )
        return cls(directory, LakeInfo.from_properties(properties), table)

    @classmethod
    def make(
        cls,
        directory: Directory,
        info: LakeInfo,
        schema: pa.Schema,
        partition_by: tuple[str, ...] = PARTITIONINGS[0],
    ) -> Lake:
        """Create a lake in an empty directory.

        Raises:
            ConfigError: the directory has content that is not a lake, or cannot be written.
        """
        if not directory.is_empty():
            raise ConfigError(
                f"{directory.url} is not empty and is no lake: name an empty directory, or one that does not exist"
            )
        directory.make()
        skipping = [name for name in STATISTICS if name in schema.names and name not in partition_by]
        properties = info.as_properties() | {
            "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
            "delta.dataSkippingStatsColumns": ",".join(skipping),
        }
        with directory.explained("written"):
            table = DeltaTable.create(
                directory.url,
                schema=Schema.from_arrow(schema),
                partition_by=list(partition_by),
                configuration=properties,
                storage_options=directory.options,
                raise_if_key_not_exists=False,
            )
        directory.settle([f"{LOG}/{0:020}.json"])
        return cls(directory, info, table)

    @property
    def id(self) -> str:
        """A value that distinguishes it from every other lake."""
        return str(self.table.metadata().id)

    @property
    def schema(self) -> pa.Schema:
        """Its columns: all that it ever had."""
        return pa.schema(self.table.schema().to_arrow())

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The columns by which it is partitioned."""
        return tuple(self.table.metadata().partition_columns)

    @property
    def position(self) -> Position:
        """The row of the archive up to which it is complete."""
        xid, id_ = (self.table.transaction_version(of) for of in self._application)
        return Position(self.info.queue, str(xid or 0), id_ or 0)

    @property
    def _application(self) -> tuple[str, str]:
        return f"{self.info.name}.archive_xid", f"{self.info.name}.id"

    def as_of(self, version: int) -> Lake:
        """Return the lake as it was in a version of the table.

        Raises:
            ConfigError: the version does not exist, or no longer exists.
        """
        try:
            table = DeltaTable(self.directory.url, version, storage_options=self.directory.options)
        except DeltaError as error:
            raise ConfigError(f"the lake {self.directory.url} has no version {version} (any more)") from error
        return replace(self, table=table)

    def refresh(self) -> None:
        """Read what was committed since."""
        with self.directory.explained("read"):
            self.table.update_incremental()

    def commit(self, files: Sequence[DataFile], schema: pa.Schema, start: Position, end: Position) -> bool:
        """Make the rows after `start`, up to and including `end`, visible, all at once.

        They are on disk when this returns.

        Return False if the lake does not end at `start`, because another process has committed. Delta refuses a commit
        if another commit of the same application was made at the same time; commits of others do not matter.

        Args:
            files: the files with these rows.
            schema: the schema of the rows.
            start: exclusive.
            end: inclusive.

        Raises:
            LakeUnwritable: the store fails. ConfigError: it may not be written.
        """
        self.directory.settle(file.path for file in files)
        before = self.table.version()
        with self.directory.explained("written"):
            if not self._append_once(files, schema, start, end):
                return False
        self.refresh()
        self.directory.settle(f"{LOG}/{version:020}.json" for version in range(before + 1, self.table.version() + 1))
        return True

    def _append_once(self, files: Sequence[DataFile], schema: pa.Schema, start: Position, end: Position) -> bool:
        for left in reversed(range(COMMIT_ATTEMPTS)):
            try:
                self._add_columns(schema)
                # Check this only now: adding columns may have loaded a newer version.
                if self.position != start:
                    return False
                self._append(files, start, end)
            except CommitFailedError:
                self.refresh()
                if not left and self.position == start:
                    raise
            else:
                return True
        return False

    def _append(self, files: Sequence[DataFile], start: Position, end: Position) -> None:
        numbers = zip(self._application, (int(end.xid), end.id), strict=True)
        positions = {"pgrouse.start": start.as_offset(), "pgrouse.end": end.as_offset()}
        self.table.create_write_transaction(
            [file.as_action() for file in files],
            mode="append",
            schema=self.table.schema(),
            partition_by=list(self.partition_by),
            commit_properties=CommitProperties(positions, app_transactions=[Transaction(*n) for n in numbers]),
        )

    def _add_columns(self, schema: pa.Schema) -> None:
        there = set(self.schema.names)
        if new := [field for field in schema if field.name not in there]:
            self.table.alter.add_columns(Schema.from_arrow(pa.schema(new)).fields)

    def files(
        self, since: datetime | None = None, until: datetime | None = None, topics: Collection[str] = ()
    ) -> list[str]:
        """Return the paths of the files of this version that may have rows of this time and these topics.

        The rows were archived in this time (until is excluded); no topics = all.
        """
        with self.directory.explained("read"):
            return sorted(self.table.file_uris(file_pruning_predicate=predicate(since, until, topics)))

    def read(
        self,
        spark: SparkSession,
        since: datetime | None = None,
        until: datetime | None = None,
        topics: Collection[str] = (),
    ) -> DataFrame:
        """Return the rows archived in this time (until is excluded), of these topics (none = all).

        They have all columns that the lake ever had.

        It reads exactly the version that the lake was opened or refreshed at, even if batches are written in the
        meantime.
        """
        return frame(spark, self, since, until, topics)


def predicate(since: datetime | None, until: datetime | None, topics: Collection[str]) -> str | None:
    """Return an expression for the files that may have rows archived in this time, of these topics; None = all."""
    parts = []
    if since:
        parts.append(f"date >= '{since.astimezone(UTC).date()}'")
    if until:
        parts.append(f"date <= '{(until.astimezone(UTC) - timedelta(microseconds=1)).date()}'")
    if topics:
        parts.append(f"topic IN ({', '.join(map(literal, topics))})")
    return " AND ".join(parts) or None


def literal(text: str) -> str:
    """Return a text as a literal in an expression of delta-rs."""
    quoted = text.replace("'", "''")
    return f"'{quoted}'"
