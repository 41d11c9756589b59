"""Stages the rows of one task: rows that can be published by COPY, and rows that cannot, each with its reason."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
from pyspark.sql.datasource import WriterCommitMessage

from pgrouse.client.call import run
from pgrouse.client.calls.bulk import begin_staging, delete_staged
from pgrouse.client.queries.pipeline.publish_stage import COPY_REJECTED, copy_staged, may_stage
from pgrouse.database.connection_schema import schema_of
from pgrouse.errors import ConfigError, SchemaMismatch
from pgrouse.publishing.schema_cache import READ_ALL, SchemaSnapshot
from pyspark_pgrouse.connection.connection import connect
from pyspark_pgrouse.publish import check as publish_check
from pyspark_pgrouse.publish import columns as publish_columns
from pyspark_pgrouse.publish import copy as publish_copy
from pyspark_pgrouse.publish.error import translated_errors

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_pgrouse.publish.columns import Columns

# The size of one COPY; faulty rows are searched for within it.
COPY_BYTES = 32 * 1024 * 1024
# The limit of one value of a rejected row, and of the reason.
MAX_VALUE_CHARS = 100_000
MAX_REASON_CHARS = 1_000


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """A task's report to the driver.

    Attributes:
        job: the key of its job.
        attempt: the number under which it staged; None = the job was published before, and nothing was staged.
        rows: how many rows it staged, rejected ones included.
    """

    job: str
    attempt: str | None = None
    rows: int = 0


def check_usable(conn: psycopg.Connection[Any]) -> None:
    """Check that this role can publish in bulk here.

    Raises:
        SchemaMismatch: the schema is missing or older.
        ConfigError: the role may not; the text has the GRANT that fixes it.
    """
    there, permitted = run(conn, may_stage())
    if not there:
        raise SchemaMismatch(
            f"database {conn.info.dbname} has no schema {schema_of(conn).name}, or one that is older: "
            "run `pgrouse migrate`"
        )
    if not permitted:
        publisher = schema_of(conn).text("messages_publisher")
        raise ConfigError(f"role {conn.info.user} may not publish: GRANT {publisher} TO {conn.info.user}")


def stage(dsn: str | None, job: str, topic: str | None, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Stage the rows of a task.

    Args:
        dsn: the connection string; None = the environment.
        job: the key under which all tasks publish together.
        topic: the topic of all rows; None = the rows have a column for it.
        batches: the rows.

    Raises:
        DatabaseUnreachable: no connection.
        PgrouseError: the server refused something that is not about one row.
    """
    with connect(dsn) as conn, translated_errors():
        attempt = run(conn, begin_staging(job))
        if attempt is None:
            return Staged(job)
        rows = StageWriter(conn, attempt, _one(conn.execute(READ_ALL)))
        for batch in batches:
            for part in _parts(batch):
                rows.add(publish_columns.normal(part, topic), part.num_rows)
        return Staged(job, str(attempt), rows.count)


def clear(dsn: str | None, staged: Sequence[Staged]) -> None:
    """Delete what was staged.

    Raises:
        PgrouseError: it could not be deleted, and stays for a day.
    """
    attempts = [UUID(each.attempt) for each in staged if each.attempt is not None]
    if attempts:
        with connect(dsn) as conn, translated_errors():
            run(conn, delete_staged(attempts))


def _one(cursor: psycopg.Cursor[Any]) -> Any:
    row = cursor.fetchone()
    return row[0] if row else None


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch that is too large for one COPY."""
    size = max(1, batch.num_rows * COPY_BYTES // max(batch.nbytes, COPY_BYTES))
    for start in range(0, batch.num_rows, size):
        yield batch.slice(start, size)


class StageWriter:
    """Stages the rows of one attempt.

    Args:
        conn: an autocommit connection. Each COPY is a separate transaction: only whole attempts are ever published.
        attempt: the number of the attempt.
        schemas: the payload_schema of all topics, from READ_ALL; None = no topic has one.

    Attributes:
        count: how many rows are staged, rejected ones included.
    """

    def __init__(self, conn: psycopg.Connection[Any], attempt: UUID, schemas: str | None) -> None:
        self.count = 0
        self._conn = conn
        self._attempt = attempt
        self._schemas = SchemaSnapshot(schemas) if schemas else None

    def add(self, columns: Columns, count: int) -> None:
        """Stage rows: each as a message, or as a rejected one."""
        good = self._without(columns, publish_check.faults(columns, count))
        good.pop(publish_columns.CORRUPT, None)
        if good and self._schemas:
            good = self._without(good, publish_check.misfits(good, self._schemas))
        if good and (refused := self._refused(good)):
            self._find_rejected(good, refused)

    def _find_rejected(self, columns: Columns, refused: psycopg.Error) -> None:
        """Find the rows because of which a COPY was refused.

        The first are those that are not JSON, which is the most common case.
        """
        good = self._without(columns, publish_check.unreadable(columns, len(columns["topic"])))
        if good and len(good["topic"]) < len(columns["topic"]):
            found = self._refused(good)
            if found is None:
                return
            refused = found
        if good:
            self._halve(good, refused)

    def _halve(self, columns: Columns, refused: psycopg.Error) -> None:
        """Find the rows because of which a COPY was refused, if only the server can decide."""
        count = len(columns["topic"])
        if count == 1:
            self._reject(columns, [_reason(refused)])
            return
        for start, end in ((0, count // 2), (count // 2, count)):
            half = {name: column.slice(start, end - start) for name, column in columns.items()}
            if found := self._refused(half):
                self._halve(half, found)

    def _refused(self, columns: Columns) -> psycopg.Error | None:
        """Stage rows all together; return the server's error if it refused them."""
        try:
            with self._conn.cursor() as cursor, cursor.copy(copy_staged([*columns])) as copy:
                copy.write(publish_copy.HEADER)
                copy.write(publish_copy.encode(columns, self._attempt))
                copy.write(publish_copy.TRAILER)
        except (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded) as error:
            return error
        self.count += len(columns["topic"])
        return None

    def _without(self, columns: Columns, reasons: pa.Array) -> Columns:
        """Reject the rows that have a reason, and return the others; nothing at all if there are none."""
        if reasons.null_count == len(reasons):
            return columns
        self._reject(
            {name: column.filter(reasons.is_valid()) for name, column in columns.items()},
            reasons.drop_null().to_pylist(),
        )
        if reasons.null_count == 0:
            return {}
        return {name: column.filter(reasons.is_null()) for name, column in columns.items()}

    def _reject(self, columns: Columns, reasons: Sequence[str]) -> None:
        rows = zip(*(column.to_pylist() for column in columns.values()), strict=True)
        with self._conn.cursor() as cursor, cursor.copy(COPY_REJECTED) as copy:
            for reason, row in zip(reasons, rows, strict=True):
                given = {
                    name: _given(name, value) for name, value in zip(columns, row, strict=True) if value is not None
                }
                copy.write_row((self._attempt, _storable(reason)[:MAX_REASON_CHARS], json.dumps(given)))
        self.count += len(reasons)


def _reason(refused: psycopg.Error) -> str:
    # The detail of a constraint's error is the whole row again.
    detail = None if isinstance(refused, psycopg.IntegrityError) else refused.diag.message_detail
    return ": ".join(filter(None, [refused.diag.message_primary, detail])) or str(refused)


def _given(name: str, value: Any) -> str | int | float:
    """Return one value of a rejected row in a form that a person can read, and a program can publish again."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()[:MAX_VALUE_CHARS]
    if isinstance(value, str):
        return _storable(value)[:MAX_VALUE_CHARS]
    if name in publish_copy.WAITS:
        return float(value / publish_columns.MICROSECONDS)
    return _moment(value) if name in publish_copy.MOMENTS else int(value)


def _moment(microseconds: int) -> str | int:
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)).isoformat()
    except OverflowError:
        return microseconds


def _storable(text: str) -> str:
    return text.replace("\x00", "\ufffd")
