"""Runs every check in turn, each with a time limit.

A check that cannot run is reported with the reason, never as ok.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace

import psycopg
from psycopg import errors

from pgrouse.config.config import Config
from pgrouse.database.database_errors import CONNECT_ERRORS
from pgrouse.database.schema_name import SchemaName
from pgrouse.doctor import (
    capacity,
    clock,
    configuration,
    connection,
    drift,
    encryption,
    listener,
    payload_schemas,
    pg_cron,
    pooler,
    rights,
    sql_checks,
)
from pgrouse.doctor.finding import Finding, fail, warn
from pgrouse.doctor.target import DoctorTarget
from pgrouse.errors import DatabaseUnreachable, SchemaMismatch

WITHIN_S = 5.0
ALL_WITHIN_S = 45.0
UNEXAMINED = "unexamined"
CheckFunction = Callable[[DoctorTarget], Iterable[Finding]]


@dataclass(frozen=True)
class DoctorCheck:
    """One check.

    Attributes:
        codes: the codes of its findings.
        run: checks the target, and returns at least one finding for each code.
        needs_database: whether it asks the database.
    """

    codes: tuple[str, ...]
    run: CheckFunction
    needs_database: bool = True


CHECKS: tuple[DoctorCheck, ...] = (
    DoctorCheck(("configuration",), configuration.check, needs_database=False),
    DoctorCheck(("connection",), connection.check),
    DoctorCheck(("pooler",), pooler.check),
    DoctorCheck(("listener",), listener.check),
    DoctorCheck(("clock",), clock.check),
    DoctorCheck(("rights",), rights.check_user),
    DoctorCheck(("schema",), drift.check_version),
    DoctorCheck(("functions",), drift.check_functions),
    DoctorCheck(("objects",), drift.check_objects),
    DoctorCheck(("grants",), rights.check_roles),
    DoctorCheck(("pg_cron",), pg_cron.check),
    *(DoctorCheck(codes, sql_checks.sql_check(examine)) for examine, codes in sql_checks.PARTS.items()),
    DoctorCheck(("connections_needed",), capacity.check),
    DoctorCheck((payload_schemas.CODE,), payload_schemas.check),
    DoctorCheck(("crypto_keys",), encryption.check_keys, needs_database=False),
    DoctorCheck(("crypto_needed",), encryption.check_needed_keys),
)
CODES = (*(code for check in CHECKS for code in check.codes), UNEXAMINED)


@dataclass(frozen=True)
class SkipReason:
    """The reason why a check could not run, and the fix."""

    text: str
    fix: str
    unreachable: bool = False


OTHER_SCHEMA = SkipReason("the schema does not match this version", "run `pgrouse migrate`")
NO_TIME = SkipReason("no time was left", "check them alone: `pgrouse doctor --only CODE`")
# The meaning of database errors here; all others are reported with the server's message.
MEANINGS: tuple[tuple[tuple[type[psycopg.Error], ...], SkipReason], ...] = (
    (
        (errors.InsufficientPrivilege,),
        SkipReason(
            "this user has no right to see it",
            "GRANT messages_operator, or messages_analyst, to the user of database.dsn",
        ),
    ),
    ((errors.QueryCanceled,), SkipReason("it took too long", "try again when the server is less busy")),
    ((errors.LockNotAvailable,), SkipReason("another session holds a lock on it", "see table_lock, and try again")),
    ((errors.UndefinedTable, errors.UndefinedFunction, errors.UndefinedColumn, errors.InvalidSchemaName), OTHER_SCHEMA),
)


def examine(
    settings: Config, only: Collection[str] = (), *, within_s: float = WITHIN_S, all_within_s: float = ALL_WITHIN_S
) -> list[Finding]:
    """Check everything that can go wrong without an error. It changes nothing.

    Args:
        settings: the configuration: names the database, and the user with whose rights it is checked.
        only: codes to check; none means all.
        within_s: the time limit of each check, in seconds.
        all_within_s: the time limit of all checks together; checks that remain then are not run.

    Returns:
        At least one finding for each code that could be checked; findings with the code `unexamined` name the others.
        If the database cannot be reached the finding `connection` says so.
    """
    target = DoctorTarget(settings, within_s)
    checks = [check for check in CHECKS if not only or not set(only).isdisjoint(check.codes)]
    try:
        found = list(_run(target, checks, time.monotonic() + all_within_s))
    finally:
        target.close()
    chosen = [each for each in found if not only or each.code in only or each.code in ("connection", UNEXAMINED)]
    return [_about(target.database.schema, each) for each in chosen]


def _about(schema: SchemaName, finding: Finding) -> Finding:
    if schema.is_default:
        return finding
    fix = None if finding.fix is None else schema.text(finding.fix)
    return replace(finding, what=schema.text(finding.what), fix=fix, detail=schema.text(finding.detail))


def _run(target: DoctorTarget, checks: Iterable[DoctorCheck], until: float) -> Iterator[Finding]:
    left_out: dict[SkipReason, list[str]] = {}
    unreachable: SkipReason | None = None
    for check in checks:
        outcome = unreachable if check.needs_database and unreachable else _run_check(target, check, until)
        if not isinstance(outcome, SkipReason):
            yield from outcome
            continue
        if outcome.unreachable and unreachable is None:
            unreachable = outcome
            yield fail("connection", outcome.text, outcome.fix)
        left_out.setdefault(outcome, []).extend(code for code in check.codes if code != "connection")
    for reason, codes in left_out.items():
        if codes:
            yield _unexamined(codes, reason)


def _unexamined(codes: list[str], reason: SkipReason) -> Finding:
    why = "the database cannot be reached" if reason.unreachable else reason.text
    return warn(UNEXAMINED, f"{', '.join(codes)}: {why}", "see connection" if reason.unreachable else reason.fix)


def _run_check(target: DoctorTarget, check: DoctorCheck, until: float) -> list[Finding] | SkipReason:
    """Return the findings of a check, or the reason why it could not run."""
    if time.monotonic() > until:
        return NO_TIME
    try:
        return list(check.run(target))
    except DatabaseUnreachable as error:
        return SkipReason(target.redacted(error), _fix(str(error)), unreachable=True)
    except SchemaMismatch:
        return OTHER_SCHEMA
    except psycopg.Error as error:
        return _skip_reason(target, error)


def _skip_reason(target: DoctorTarget, error: psycopg.Error) -> SkipReason:
    for classes, reason in MEANINGS:
        if isinstance(error, classes):
            return reason
    return SkipReason(target.redacted(error.diag.message_primary or error), "try again")


def _fix(said: str) -> str:
    """Return how to fix a failed connection."""
    return next((meaning for pattern, meaning, _ in CONNECT_ERRORS if re.search(pattern, said)), "see database.dsn")
