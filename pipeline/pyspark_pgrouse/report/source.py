"""The sources of a report: a lake, or the archive in the database. Either is read once, a batch of rows at a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from pgrouse.client.queries.pipeline.row import Scope, select_rows
from pgrouse.config.dsn import redact
from pgrouse.errors import ConfigError
from pyspark_pgrouse.connection import connection

if TYPE_CHECKING:
    from pyspark_pgrouse.report.window import Window

MOMENT = pa.timestamp("us", tz="UTC")
# The columns that a report reads; it reads no others, and no payloads.
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("topic", pa.string()),
        ("channel", pa.string()),
        ("created_at", MOMENT),
        ("available_at", MOMENT),
        ("attempts", pa.int32()),
        ("locked_at", MOMENT),
        ("history", pa.string()),
        ("result", pa.string()),
        ("error", pa.string()),
        ("error_fingerprint", pa.string()),
        ("handled_by", pa.string()),
        ("archived_at", MOMENT),
    ]
)
# A lake may lack these columns: they are NULL then.
OPTIONAL = {"channel", "history", "error", "error_fingerprint", "handled_by"}
SQL_TYPES = {pa.int64(): "bigint", pa.int32(): "integer", pa.string(): "text", MOMENT: "timestamptz"}
# By default pyarrow reads so far ahead that it needs more memory than DuckDB.
READ_AHEAD = {"batch_size": 65_536, "batch_readahead": 4, "fragment_readahead": 2}


class ArchiveSource(Protocol):
    """A source of archived messages."""

    @property
    def name(self) -> str:
        """Its name, in a form that can be shown."""

    def read(self, window: Window) -> pa.RecordBatchReader:
        """Return the rows archived in the time that the window reads, with COLUMNS."""


@dataclass(frozen=True)
class LakeSource:
    """A lake: a Delta table. topics: only these; () = all."""

    table: DeltaTable
    name: str
    topics: tuple[str, ...] = ()

    @classmethod
    def open(cls, url: str, topics: tuple[str, ...] = ()) -> LakeSource:
        """Open a lake: a path or a URL.

        Raises:
            ConfigError: there is none, it cannot be read, or it lacks a column.
        """
        try:
            table = DeltaTable(url)
        except TableNotFoundError as error:
            raise ConfigError(f"there is no lake in {url}: make one with `pgrouse pipeline export {url}`") from error
        except (DeltaError, OSError) as error:
            raise ConfigError(f"the lake {redact(url)} cannot be read: {error}") from error
        there = {field.name for field in table.schema().fields}
        if missing := sorted(set(COLUMNS.names) - there - OPTIONAL):
            raise ConfigError(f"the lake {redact(url)} has no column {', '.join(missing)}, which a report needs")
        return cls(table, f"lake {redact(url)}", topics)

    def read(self, window: Window) -> pa.RecordBatchReader:
        """Return the rows archived in the time that the window reads; files of other days and topics are not opened."""
        dataset = self.table.to_pyarrow_dataset()
        columns = {field.name: self._column(dataset.schema, field) for field in COLUMNS}
        return dataset.scanner(columns=columns, filter=self._filter(dataset.schema, window), **READ_AHEAD).to_reader()

    def _column(self, there: pa.Schema, field: pa.Field) -> pc.Expression:
        if field.name not in there.names:
            return pc.scalar(pa.scalar(None, field.type))
        return ds.field(field.name).cast(field.type)

    def _filter(self, there: pa.Schema, window: Window) -> pc.Expression:
        wanted = _between(there, "archived_at", window.first, window.until)
        # The log always knows the partitions by date, even if it has no statistics of archived_at.
        if "date" in there.names:
            first, last = (moment.astimezone(UTC).date() for moment in (window.first, window.until))
            wanted &= (ds.field("date") >= _scalar(there, "date", first)) & (
                ds.field("date") <= _scalar(there, "date", last)
            )
        return wanted & ds.field("topic").isin(self.topics) if self.topics else wanted


def _between(there: pa.Schema, name: str, first: Any, until: Any) -> pc.Expression:
    return (ds.field(name) >= _scalar(there, name, first)) & (ds.field(name) < _scalar(there, name, until))


def _scalar(there: pa.Schema, name: str, value: Any) -> pa.Scalar:
    return pa.scalar(value).cast(there.field(name).type)


@dataclass(frozen=True)
class DatabaseSource:
    """The archive in the database. It has only the messages that the topics' retention keeps."""

    dsn: str | None
    name: str
    topics: tuple[str, ...] = ()

    @classmethod
    def open(cls, dsn: str | None, topics: tuple[str, ...] = ()) -> DatabaseSource:
        """Check that the archive can be read.

        Raises:
            DatabaseUnreachable: no connection could be made.
            ConfigError: the role may not read it.
            SchemaMismatch: there is no schema, or it is too old.
        """
        with connection.connect(dsn) as conn:
            connection.check(conn, "message_archive", COLUMNS.names)
            where = conn.info.host or "local socket"
            return cls(dsn, f"database {conn.info.dbname} on {where}:{conn.info.port}", topics)

    def read(self, window: Window) -> pa.RecordBatchReader:
        """Return the rows archived in the time that the window reads: one statement, which sees one moment."""
        columns = ", ".join(f"a.{field.name}::{SQL_TYPES[field.type]}" for field in COLUMNS)
        scope = Scope(topics=self.topics, since=window.first, until=window.until)
        batches = connection.arrow(self.dsn, select_rows("message_archive", columns, scope.sql()))
        return pa.RecordBatchReader.from_batches(COLUMNS, (batch.cast(COLUMNS) for batch in batches))
