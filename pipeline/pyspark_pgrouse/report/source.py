"""Where a report reads from: a lake, or the archive in the database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pgrouse.config.dsn import redact
from pyspark_pgrouse.connection import check, connect
from pyspark_pgrouse.lake.lake import Lake
from pyspark_pgrouse.report.window import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What a report is made of; nothing else is read. Payloads are not in it.
COLUMNS = (
    "id",
    "topic",
    "channel",
    "created_at",
    "available_at",
    "attempts",
    "locked_at",
    "history",
    "result",
    "error",
    "error_fingerprint",
    "handled_by",
    "archived_at",
)
TYPES = {"id": "bigint", "attempts": "int"} | dict.fromkeys(
    ("created_at", "available_at", "locked_at", "archived_at"), "timestamp"
)


class ArchiveSource(Protocol):
    """Where archived messages are."""

    @property
    def name(self) -> str:
        """What it is called, fit to be shown."""

    @property
    def is_rereadable(self) -> bool:
        """Whether it can be read once for each table; otherwise it is copied first."""

    def read(self, spark: SparkSession, window: Window) -> DataFrame:
        """Return what is archived in the time that the window reads."""


@dataclass(frozen=True)
class LakeSource:
    """A lake. topics: only these; () = all."""

    lake: Lake
    topics: tuple[str, ...] = ()

    @classmethod
    def open(cls, url: str, topics: tuple[str, ...] = ()) -> LakeSource:
        """Open a lake.

        Raises:
            ConfigError: there is none.
        """
        return cls(Lake.open(url), topics)

    @property
    def name(self) -> str:
        """The URL of the lake, without a password."""
        return f"lake {redact(self.lake.directory.url)}"

    @property
    def is_rereadable(self) -> bool:
        """Whether it is on a file system: of a Parquet file there only the needed columns are read."""
        return self.lake.directory.is_local

    def read(self, spark: SparkSession, window: Window) -> DataFrame:
        """Return what is archived in the time that the window reads."""
        return self.lake.read(spark, window.first, window.until, self.topics).select(*COLUMNS)


@dataclass(frozen=True)
class DatabaseSource:
    """The archive in the database. It keeps what the topics' retention says, and no more."""

    dsn: str | None
    name: str
    topics: tuple[str, ...] = ()
    is_rereadable = False

    @classmethod
    def open(cls, dsn: str | None, topics: tuple[str, ...] = ()) -> DatabaseSource:
        """Make sure that the archive can be read.

        Raises:
            DatabaseUnreachable: no connection could be made.
            ConfigError: the role may not read it.
            SchemaMismatch: there is no schema, or it is too old.
        """
        with connect(dsn) as conn:
            check(conn, "message_archive", COLUMNS)
            where = conn.info.host or "local socket"
            return cls(dsn, f"database {conn.info.dbname} on {where}:{conn.info.port}", topics)

    def read(self, spark: SparkSession, window: Window) -> DataFrame:
        """Return what is archived in the time that the window reads."""
        said = {"mode": "archive", "since": window.first.isoformat(), "until": window.until.isoformat()}
        if self.dsn:
            said["dsn"] = self.dsn
        if self.topics:
            said["topics"] = ",".join(self.topics)
        schema = ", ".join(f"{name} {TYPES.get(name, 'string')}" for name in COLUMNS)
        return spark.read.format("pgrouse").options(**said).schema(schema).load()
