"""The examination: every check in turn, each for a bounded time. One that cannot be made says why, and is never silently well."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

import psycopg
from psycopg import errors

from pgrouse.database_errors import CONNECTING
from pgrouse.config.config import Config
from pgrouse.doctor import capacity, clock, configuration, connection, drift, encryption, pg_cron, pooler, rights
from pgrouse.doctor import sql_checks as inside
from pgrouse.doctor import listener as listening
from pgrouse.doctor.finding import Finding, fail, warn
from pgrouse.doctor.target import Subject
from pgrouse.errors import DatabaseUnreachable, SchemaMismatch

WITHIN_S = 5.0
ALL_WITHIN_S = 45.0
UNEXAMINED = "unexamined"
Look = Callable[[Subject], Iterable[Finding]]


@dataclass(frozen=True)
class Check:
    """One look at something.

    Attributes:
        codes: what it may speak of.
        look: looks at the subject, and says at least one thing of each code.
        needs_database: whether it asks the database.
    """

    codes: tuple[str, ...]
    look: Look
    needs_database: bool = True


CHECKS: tuple[Check, ...] = (
    Check(("configuration",), configuration.look, needs_database=False),
    Check(("connection",), connection.look),
    Check(("pooler",), pooler.look),
    Check(("listener",), listening.look),
    Check(("clock",), clock.look),
    Check(("rights",), rights.look_at_user),
    Check(("schema",), drift.look_at_version),
    Check(("functions",), drift.look_at_functions),
    Check(("objects",), drift.look_at_objects),
    Check(("grants",), rights.look_at_roles),
    Check(("pg_cron",), pg_cron.look),
    *(Check(codes, inside.look(part)) for part, codes in inside.PARTS.items()),
    Check(("connections_needed",), capacity.look),
    Check(("crypto_keys",), encryption.look_at_keys, needs_database=False),
    Check(("crypto_needed",), encryption.look_at_needs),
)
CODES = (*(code for check in CHECKS for code in check.codes), UNEXAMINED)


@dataclass(frozen=True)
class Reason:
    """Why something could not be examined, and what to do about that."""

    text: str
    mend: str
    unreachable: bool = False


OTHER_SCHEMA = Reason("the schema is not that of this version", "run `pgrouse migrate`")
NO_TIME = Reason("no time was left", "look at them alone: `pgrouse doctor --only CODE`")
# What an error of the database means here; every other one is told in its own words.
MEANINGS: tuple[tuple[tuple[type[psycopg.Error], ...], Reason], ...] = (
    (
        (errors.InsufficientPrivilege,),
        Reason(
            "this user may not look at it", "GRANT messages_operator, or messages_analyst, to the user of database.dsn"
        ),
    ),
    ((errors.QueryCanceled,), Reason("it took too long", "try again when the server has less to do")),
    ((errors.LockNotAvailable,), Reason("somebody holds a lock on it", "see table_lock, and try again")),
    ((errors.UndefinedTable, errors.UndefinedFunction, errors.UndefinedColumn, errors.InvalidSchemaName), OTHER_SCHEMA),
)


def examine(
    settings: Config, only: Collection[str] = (), *, within_s: float = WITHIN_S, all_within_s: float = ALL_WITHIN_S
) -> list[Finding]:
    """Look at everything that is known to go wrong without a word; change nothing.

    Args:
        settings: the configuration: what it names is looked at, with the rights of its user.
        only: codes to look at; none means all.
        within_s: how long each look may take, in seconds.
        all_within_s: how long all of it may take; what is left then is not looked at any more.

    Returns:
        At least one finding for each code that could be looked at; the others are named by findings with the code `unexamined`.
        If the database cannot be reached the finding `connection` says so.
    """
    subject = Subject(settings, within_s)
    checks = [check for check in CHECKS if not only or not set(only).isdisjoint(check.codes)]
    try:
        found = list(_run(subject, checks, time.monotonic() + all_within_s))
    finally:
        subject.close()
    return [each for each in found if not only or each.code in only or each.code in ("connection", UNEXAMINED)]


def _run(subject: Subject, checks: Iterable[Check], until: float) -> Iterator[Finding]:
    left_out: dict[Reason, list[str]] = {}
    unreachable: Reason | None = None
    for check in checks:
        outcome = unreachable if check.needs_database and unreachable else _outcome(subject, check, until)
        if not isinstance(outcome, Reason):
            yield from outcome
            continue
        if outcome.unreachable and unreachable is None:
            unreachable = outcome
            yield fail("connection", outcome.text, outcome.mend)
        left_out.setdefault(outcome, []).extend(code for code in check.codes if code != "connection")
    for reason, codes in left_out.items():
        if codes:
            yield _unexamined(codes, reason)


def _unexamined(codes: list[str], reason: Reason) -> Finding:
    why = "the database cannot be reached" if reason.unreachable else reason.text
    return warn(UNEXAMINED, f"{', '.join(codes)}: {why}", "see connection" if reason.unreachable else reason.mend)


def _outcome(subject: Subject, check: Check, until: float) -> list[Finding] | Reason:
    """Return what a check found, or why it could not look."""
    if time.monotonic() > until:
        return NO_TIME
    try:
        return list(check.look(subject))
    except DatabaseUnreachable as error:
        return Reason(subject.redacted(error), _mend(str(error)), unreachable=True)
    except SchemaMismatch:
        return OTHER_SCHEMA
    except psycopg.Error as error:
        return _meaning(subject, error)


def _meaning(subject: Subject, error: psycopg.Error) -> Reason:
    for classes, reason in MEANINGS:
        if isinstance(error, classes):
            return reason
    return Reason(subject.redacted(error.diag.message_primary or error), "try again")


def _mend(said: str) -> str:
    """Return what a failed connection means to whoever made it."""
    return next((meaning for pattern, meaning, _ in CONNECTING if re.search(pattern, said)), "see database.dsn")
