"""Connections to PostgreSQL from drivers and executors, and the checks before anything is read."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import OperationalError, ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import DeadlockDetected

from pgrouse.client.call import run
from pgrouse.client.queries.pipeline.row import SET_VALUES
from pgrouse.client.queries.pipeline.table import schema_access, table_columns
from pgrouse.config import dsn as dsns
from pgrouse.database import connection_schema, schema_name, session_settings
from pgrouse.errors import ConfigError, DatabaseUnreachable, PgrouseError, SchemaMismatch
from pyspark_pgrouse.connection.queue_dsn import schema_of
from pyspark_pgrouse.connection.replica import ReplayTarget, wait_for_replay

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

# A dead peer is noticed after 25 s. The connection string overrides this.
DEFAULTS: dict[str, Any] = {
    "application_name": "pgrouse-spark",
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15000,
    "client_encoding": "utf8",
}
# How long the driver waits for a server that was reached before. A task waits less: Spark runs it four times.
RETRY_TIMEOUT_S = 30.0
TASK_RETRY_TIMEOUT_S = 10.0
# The errors of libpq while a server restarts. A wrong password or name is another error, and is not retried.
TRANSIENT_ERRORS = re.compile(
    r"Connection refused|No such file or directory|server closed the connection"
    r"|the database system is (?:starting up|shutting down|in recovery mode|not yet accepting connections)"
)
# The settings of pgrouse's sessions, as options at connect. A setting that some versions of the server lack would be
# refused, so it is left out.
OPTIONS = " ".join(
    f"-c {name}={value}".replace(", ", ",") if "," in value else f"-c {name}=" + value.replace(" ", "\\ ")
    for name, value in session_settings.SETTINGS.items()
    if name != "transaction_timeout"
)
# The answer of a pooler that allows no options at connect; then the settings are those of the role.
OPTIONS_REJECTED = "unsupported startup parameter"
# How much data ADBC gathers for a batch. With batches a quarter of this size an export takes an eighth longer.
BATCH_BYTES = 16 * 1024 * 1024


def conninfo(dsn: str | None) -> str:
    """Return the connection string with the defaults of all connections.

    Raises:
        ConfigError: libpq cannot read it. The text does not repeat it.
    """
    try:
        return make_conninfo("", **{**DEFAULTS, **conninfo_to_dict(dsn or "")})
    except ProgrammingError:
        raise ConfigError(
            "option dsn is not a connection string of PostgreSQL: expected postgresql://user@host/database "
            "or host=... dbname=..."
        ) from None  # its text quotes the connection string


def connect(dsn: str | None) -> psycopg.Connection[Any]:
    """Open an autocommit connection to a queue: statements on it are for its schema.

    Args:
        dsn: None = the environment, as libpq reads it.

    Raises:
        ConfigError: the connection string cannot be read.
        DatabaseUnreachable: with libpq's reason, without the password.
    """
    try:
        with schema_name.use_schema(schema_of(dsn)):
            return session_settings.set_up(psycopg.connect(conninfo(dsn), autocommit=True))
    except psycopg.OperationalError as error:
        raise DatabaseUnreachable(_redacted(error, dsn)) from None  # the cause would show the connection string


def _redacted(error: BaseException, dsn: str | None) -> str:
    reason = " ".join(str(error).split())
    return f"no connection to PostgreSQL: {dsns.redact(reason, dsns.secrets(dsn))}"


def dsn_for_adbc(dsn: str | None, *, are_set: bool = True) -> str:
    """Return the connection string for ADBC's driver; never empty, since the driver refuses an empty one.

    The driver runs statements before the first statement of pgrouse, so the settings are set at connect. are_set:
    whether they are.
    """
    if not are_set:
        return conninfo(dsn)
    given = str(conninfo_to_dict(conninfo(dsn)).get("options") or os.environ.get("PGOPTIONS", ""))
    return make_conninfo(conninfo(dsn), options=f"{given} {OPTIONS}".strip())


def run_with_retry(
    dsn: str | None,
    function: Callable[[psycopg.Connection[Any]], T],
    retry_timeout_s: float = RETRY_TIMEOUT_S,
    *,
    known: bool = False,
) -> T:
    """Open a connection, call the function with it, and close it.

    Try again after a deadlock, or if the server went away.

    Args:
        dsn: as in `connect`.
        function: what to do with the connection. It may be called again from the start, so it must be idempotent.
        retry_timeout_s: how many seconds to wait for a server that was reached before.
        known: it was reached before.

    Raises:
        DatabaseUnreachable: it was never reached, or did not come back in time.
        psycopg.errors.DeadlockDetected: the deadlocks continued until the time was over.
    """
    lost: Exception
    for _ in _attempts(retry_timeout_s):
        try:
            with connect(dsn) as conn:
                known = True
                return function(conn)
        except DatabaseUnreachable as error:
            lost = error
            if not known:
                raise
        except DeadlockDetected as error:
            lost = error
        except OperationalError as error:
            lost = DatabaseUnreachable(_redacted(error, dsn))
            if not conn.broken:
                raise
    raise lost


def _attempts(retry_timeout_s: float) -> Iterator[None]:
    """Yield at once, and from time to time until the timeout is over."""
    deadline = time.monotonic() + retry_timeout_s
    yield
    while time.monotonic() < deadline:
        time.sleep(random.uniform(0.1, 1.0))  # noqa: S311 - not all at once
        yield


def arrow(
    dsn: str | None,
    query: str,
    retry_timeout_s: float = TASK_RETRY_TIMEOUT_S,
    *,
    values: str | None = None,
    target: ReplayTarget | None = None,
) -> Iterator[pa.RecordBatch]:
    """Run a query through ADBC and yield its result, a few megabytes at a time.

    Args:
        dsn: as in `connect`.
        query: ADBC runs it by COPY, which takes no parameters.
        retry_timeout_s: how many seconds to wait for a server that restarts.
        values: the values that the query refers to, from `Values.text`.
        target: how far the server must have replayed, if it is a standby.

    Raises:
        DatabaseUnreachable: no connection could be made, or the standby did not replay enough in time.
        PgrouseError: the query failed. Neither text holds a secret.
    """
    from adbc_driver_postgresql import StatementOptions, dbapi  # noqa: PLC0415 - slow to import: only reads need it

    hint = {StatementOptions.BATCH_SIZE_HINT_BYTES.value: BATCH_BYTES}
    with closing(_opened(dsn, retry_timeout_s)) as conn, closing(conn.cursor(adbc_stmt_kwargs=hint)) as cursor:
        try:
            if target is not None:
                wait_for_replay(cursor, target)
            if values is not None:
                _set_values(conn, values)
            cursor.execute(schema_of(dsn).render_around_values(query))
            yield from cursor.fetch_record_batch()
        except (dbapi.Error, OSError) as error:
            raise PgrouseError(f"reading failed: {dsns.redact(str(error), dsns.secrets(dsn))}") from None


def _set_values(conn: Any, values: str) -> None:
    """Begin a transaction with these values: a pooler may give the next one to another session."""
    conn.adbc_connection.set_autocommit(False)
    with closing(conn.cursor()) as cursor:
        cursor.execute(SET_VALUES, [values])
        cursor.fetchone()


def _opened(dsn: str | None, retry_timeout_s: float) -> Any:
    from adbc_driver_postgresql import dbapi  # noqa: PLC0415 - slow to import: only reads need it

    are_set = True
    for _ in _attempts(retry_timeout_s):
        try:
            return dbapi.connect(dsn_for_adbc(dsn, are_set=are_set), autocommit=True)
        except dbapi.Error as error:
            lost = DatabaseUnreachable(_redacted(error, dsn))
            if are_set and OPTIONS_REJECTED in str(error):
                are_set = False
                continue
            if not TRANSIENT_ERRORS.search(str(error)):
                break
    raise lost


def check(conn: psycopg.Connection[Any], table: str, columns: Sequence[str]) -> None:
    """Check that the table exists and that this role may read the columns.

    Args:
        conn: a connection.
        table: `message` or `message_archive`.
        columns: the columns that will be read.

    Raises:
        SchemaMismatch: there is no such schema here, or it is older than this reader.
        ConfigError: the role may not read; the text has the GRANT that fixes it.
    """
    who, schema = conn.info.user, connection_schema.schema_of(conn)
    operator = schema.text("messages_operator")
    there, usable = run(conn, schema_access())
    if not there:
        raise SchemaMismatch(
            f"database {conn.info.dbname} has no schema {schema.name}: run `pgrouse migrate` there, "
            "or name the right one"
        )
    if not usable:
        raise ConfigError(f"role {who} may not use the schema {schema.name}: GRANT {operator} TO {who}")
    found = {column.name: column.is_readable for column in run(conn, table_columns(table))}
    wanted = sorted(set(columns))
    if missing := [name for name in wanted if name not in found]:
        raise SchemaMismatch(f"{schema.identifier}.{table} has no column {', '.join(missing)}: run `pgrouse migrate`")
    if denied := [name for name in wanted if not found[name]]:
        raise ConfigError(
            f"role {who} may not read {', '.join(denied)} of {schema.identifier}.{table}: "
            f"GRANT {operator} TO {who}, "
            "or leave them out by option columns"
        )
