"""What errors of PostgreSQL mean to whoever typed the command."""

from __future__ import annotations

import re

import psycopg
from psycopg import errors

from pgrouse.errors import ExitCode

UNREACHABLE = ExitCode.DATABASE_UNREACHABLE
AGAIN = ExitCode.TRY_AGAIN
PROBLEM = ExitCode.FOUND_A_PROBLEM

# libpq passes no SQLSTATE on when a connection fails; the words are those of the server, in English or not at all.
CONNECTING: list[tuple[str, str, ExitCode]] = [
    (
        r"starting up|shutting down|recovery mode|not yet accepting",
        "the server is not ready: try again in a moment",
        AGAIN,
    ),
    (
        r"too many clients|remaining connection slots|too many connections",
        "the server has no connection left: try again, or raise max_connections",
        AGAIN,
    ),
    (
        r"password authentication failed|no password supplied",
        "the password is wrong or missing: see database.dsn, PGPASSWORD or ~/.pgpass",
        UNREACHABLE,
    ),
    (r'database "(.+?)" does not exist', "the database does not exist: create it with `createdb`", UNREACHABLE),
    (r'role "(.+?)" does not exist', "the role does not exist: see the user in database.dsn", UNREACHABLE),
    (r"no pg_hba\.conf entry", "the server does not let this user in from here: see its pg_hba.conf", UNREACHABLE),
    (r"session is read-only", "the server is a standby: name the primary in database.dsn", UNREACHABLE),
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


def explain_database(error: psycopg.Error) -> tuple[str, int]:
    """Return the line to print and the exit code."""
    if error.sqlstate is None:
        return _connecting(error) if isinstance(error, psycopg.OperationalError) else (_said(error), PROBLEM)
    what, mend, code = _meaning(error)
    return f"{what}: {mend}" if mend else what, code


def _said(error: psycopg.Error) -> str:
    return error.diag.message_primary or " ".join(str(error).split())


def _connecting(error: psycopg.Error) -> tuple[str, int]:
    said = " ".join(str(error).split())
    for pattern, meaning, code in CONNECTING:
        if re.search(pattern, said):
            return f"cannot use the database: {meaning} ({said})", code
    return f"cannot use the database: {said}", UNREACHABLE


# Errors with a SQLSTATE: what is said besides the server's own words.
RUNNING: list[tuple[tuple[type[psycopg.Error], ...], str, ExitCode]] = [
    (
        (errors.LockNotAvailable, errors.SerializationFailure, errors.DeadlockDetected),
        "somebody else is at it, try again",
        AGAIN,
    ),
    ((errors.QueryCanceled,), "it took too long; narrow the filter, or try again", AGAIN),
    (
        (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow, errors.TooManyConnections),
        "the server goes down or comes up, try again",
        AGAIN,
    ),
    (
        (errors.UndefinedTable, errors.UndefinedFunction, errors.InvalidSchemaName, errors.UndefinedColumn),
        "the schema is missing or older than this version, run `pgrouse migrate`",
        ExitCode.BAD_CONFIG,
    ),
    ((errors.ReadOnlySqlTransaction,), "this is a standby, name the primary in database.dsn", UNREACHABLE),
]


# What only the database can find out about a message that is published.
CONSTRAINTS: dict[str | None, tuple[str, str]] = {
    "message_key": ("a message with this key waits already", "nothing was published"),
    "schedule_pkey": ("there is a schedule of this name already", "choose another name, or change it with --replace"),
    "message_topic_is_a_name": (
        "that is no name of a topic",
        "use 1 to 200 of A-Z a-z 0-9 . _ : - with a letter or digit first",
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
        "the headers are no object, or have more than 64 KiB as text",
        "put less into them",
    ),
}


def _meaning(error: psycopg.Error) -> tuple[str, str, ExitCode]:
    """Return what is wrong, the mend, and the exit code of an error with a SQLSTATE."""
    said = _said(error)
    for classes, mend, code in RUNNING:
        if isinstance(error, classes):
            return said, mend, code
    if isinstance(error, errors.InsufficientPrivilege):
        return said, _right_needed(said), PROBLEM
    if error.diag.constraint_name in CONSTRAINTS:
        return (*CONSTRAINTS[error.diag.constraint_name], PROBLEM)
    return f"{said} (SQLSTATE {error.sqlstate})", error.diag.message_hint or "", PROBLEM


def _right_needed(said: str) -> str:
    if "for database" in said:
        return "GRANT CREATE ON DATABASE to this user, or connect as the owner of the database"
    if "must be owner" in said or "permission denied to set role" in said:
        return "the schema belongs to somebody else; connect as its owner, or as a superuser"
    if re.search(r"table message(_archive)?\b|view dead", said):
        return "this needs messages_operator; GRANT it to this user, or add --no-payload where there is that option"
    return "this needs messages_operator; GRANT it to this user"
