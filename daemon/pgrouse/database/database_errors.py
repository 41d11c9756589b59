"""The meaning of errors of the database, the system and pgrouse: a line with the fix, and an exit code."""

from __future__ import annotations

import logging
import re
from contextlib import suppress

import psycopg
from psycopg import errors

from pgrouse.database import schema_name
from pgrouse.errors import ExitCode, PgrouseError

UNREACHABLE = ExitCode.DATABASE_UNREACHABLE
TRY_AGAIN = ExitCode.TRY_AGAIN
PROBLEM = ExitCode.FOUND_A_PROBLEM

# The errors of a database that is unreachable, restarting, overloaded or failed over: loops try again after these. Any
# other error is a bug.
CONNECTION_ERRORS = (psycopg.Error, OSError, TimeoutError)


def silence_driver() -> None:
    """Silence the log of psycopg and its pools, which has a text for each try of each connection.

    Its errors are raised, and pgrouse explains them.
    """
    for name in ("psycopg", "psycopg.pool"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


# libpq reports no SQLSTATE when a connection fails; the texts are those of an English server.
CONNECT_ERRORS: list[tuple[str, str, ExitCode]] = [
    (
        r"starting up|shutting down|recovery mode|not yet accepting",
        "the server is not ready: try again in a moment",
        TRY_AGAIN,
    ),
    (
        r"server closed the connection|terminated abnormally|consuming input failed|sending query failed"
        r"|connection has been closed unexpectedly|[Cc]onnection reset by peer|Broken pipe"
        r"|the connection is (?:lost|closed)",
        "the connection broke, since the server restarted or the network failed: try again",
        TRY_AGAIN,
    ),
    (
        r"too many clients|remaining connection slots|too many connections",
        "the server has no connection left: try again, or raise max_connections",
        TRY_AGAIN,
    ),
    (
        r"password authentication failed|no password supplied",
        "the password is wrong or missing: see database.dsn, PGPASSWORD or ~/.pgpass",
        UNREACHABLE,
    ),
    (r'database "(.+?)" does not exist', "the database does not exist: create it with `createdb`", UNREACHABLE),
    (r'role "(.+?)" does not exist', "the role does not exist: see the user in database.dsn", UNREACHABLE),
    (r"no pg_hba\.conf entry", "the server does not let this user in from here: see its pg_hba.conf", UNREACHABLE),
    (r"in hot standby mode", "the server is a standby: name the primary in database.dsn", UNREACHABLE),
    (
        r"session is read-only",
        "the server is a standby, or default_transaction_read_only is on: see target_session_attrs in database.dsn",
        UNREACHABLE,
    ),
    (
        r"could not translate host name|Name or service not known",
        "the host is not known: see the host in database.dsn",
        UNREACHABLE,
    ),
    (
        r"Connection refused|No such file or directory",
        "no server listens there: start it, or see host and port in database.dsn",
        UNREACHABLE,
    ),
    (r"timeout expired|timed out", "the server does not answer: see host and port in database.dsn", UNREACHABLE),
    (r"definition of service", "the service is not known: see PGSERVICE and pg_service.conf", UNREACHABLE),
]


def explain(error: BaseException) -> tuple[str, int]:
    """Return the line to print and the exit code; raise any other error again.

    An error that a database error caused keeps its own message.
    """
    match error:
        case PgrouseError(exit_code=ExitCode.DATABASE_UNREACHABLE, __cause__=BaseException() as cause):
            return explain(cause)
        case PgrouseError():
            return _with_schema(str(error)), error.exit_code
        case OSError():
            return f"{error.filename or ''}: {error.strerror or error}".removeprefix(": "), PROBLEM
        case psycopg.Error():
            return explain_database_error(error)
    raise error


def explain_database_error(error: psycopg.Error) -> tuple[str, int]:
    """Return the line to print and the exit code."""
    if error.sqlstate is None:
        return (
            _connect_error(error) if isinstance(error, psycopg.OperationalError) else (_server_message(error), PROBLEM)
        )
    what, fix, code = _meaning(error)
    return f"{what}: {_with_schema(fix)}" if fix else what, code


def _with_schema(text: str) -> str:
    """Return a text about the schema `messages` as one about that of this process."""
    with suppress(ValueError):  # the environment names one that cannot be, which is another error
        return schema_name.current().text(text)
    return text


def _server_message(error: psycopg.Error) -> str:
    return error.diag.message_primary or " ".join(str(error).split())


def _connect_error(error: psycopg.Error) -> tuple[str, int]:
    message = " ".join(str(error).split())
    for pattern, meaning, code in CONNECT_ERRORS:
        if re.search(pattern, message):
            return f"cannot use the database: {meaning} ({message})", code
    return f"cannot use the database: {message}", UNREACHABLE


# Errors with a SQLSTATE: the hint that is added to the server's message.
STATEMENT_ERRORS: list[tuple[tuple[type[psycopg.Error], ...], str, ExitCode]] = [
    (
        (errors.LockNotAvailable, errors.SerializationFailure, errors.DeadlockDetected),
        "another session uses it, try again",
        TRY_AGAIN,
    ),
    ((errors.QueryCanceled,), "it took too long; narrow the filter, or try again", TRY_AGAIN),
    (
        (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow, errors.TooManyConnections),
        "the server is starting or stopping, try again",
        TRY_AGAIN,
    ),
    (
        (errors.UndefinedTable, errors.UndefinedFunction, errors.InvalidSchemaName, errors.UndefinedColumn),
        "the schema is missing or older than this version, run `pgrouse migrate`",
        ExitCode.BAD_CONFIG,
    ),
    (
        (errors.ReadOnlySqlTransaction,),
        "default_transaction_read_only is on for this role, database or server (`pgrouse doctor` says what to "
        "change), or this is a standby",
        UNREACHABLE,
    ),
]


# PgBouncer's error for a BEGIN.
STATEMENT_MODE = "not allowed in statement pooling mode"
POOLER_FIX = (
    "the pooler is in statement mode: set pool_mode = transaction for this database, or connect to the server itself"
)

# Constraints that only the database can check for a published message.
CONSTRAINTS: dict[str | None, tuple[str, str]] = {
    "message_key": ("a message with this key waits already", "nothing was published"),
    "schedule_pkey": ("a schedule with this name exists already", "choose another name, or change it with --replace"),
    "message_topic_is_a_name": (
        "that is not a valid topic name",
        "use 1 to 200 of A-Z a-z 0-9 . _ : - with a letter or digit first",
    ),
    "topic_or_pattern_is_a_name": (
        "that is neither a topic name nor a pattern",
        "use 1 to 200 of A-Z a-z 0-9 . _ : - with a letter or digit first; a pattern ends with .* or .**",
    ),
    "message_payload_fits_16_mib": (
        "the payload needs more than 16 MiB in the database",
        "store it elsewhere and publish where it is",
    ),
    "message_contents_fit_16_mib": (
        "payload and headers have more than 16 MiB as text",
        "store them elsewhere and publish where they are",
    ),
    "message_headers_are_an_object": (
        "the headers are not an object, or have more than 64 KiB as text",
        "put less into them",
    ),
}


def _meaning(error: psycopg.Error) -> tuple[str, str, ExitCode]:
    """Return the problem, the fix and the exit code of an error with a SQLSTATE."""
    message = _server_message(error)
    for classes, fix, code in STATEMENT_ERRORS:
        if isinstance(error, classes):
            return message, fix, code
    if STATEMENT_MODE in message:
        return message, POOLER_FIX, ExitCode.BAD_CONFIG
    if isinstance(error, errors.InsufficientPrivilege):
        return message, _right_needed(message), PROBLEM
    if error.diag.constraint_name in CONSTRAINTS:
        return (*CONSTRAINTS[error.diag.constraint_name], PROBLEM)
    return f"{message} (SQLSTATE {error.sqlstate})", error.diag.message_hint or "", PROBLEM


def _right_needed(message: str) -> str:
    if "row-level security" in message:
        return "run `pgrouse migrate`, which switches it off"
    if "for database" in message:
        return "GRANT CREATE ON DATABASE to this user, or connect as the owner of the database"
    if "must be owner" in message or "permission denied to set role" in message:
        return "the schema belongs to another role; connect as its owner, or as a superuser"
    if re.search(r"table message(_archive)?\b|view dead", message):
        return "this needs messages_operator; GRANT it to this user, or add --no-payload where there is that option"
    if "for schema" in message:
        return (
            "GRANT this user messages_worker (for `pgrouse run`), messages_publisher (to publish), "
            "or messages_operator (for all else)"
        )
    return "this needs messages_operator; GRANT it to this user"
