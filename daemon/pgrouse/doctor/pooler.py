"""Whether a pooler stands in between, and whether the configuration knows.

A pooler invents the process id that it tells at the connect. One in transaction mode hands each transaction to another session of the
server, where a statement that was prepared before is not known: it depends on pooler and version, so it is tried.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
from psycopg import errors

from pgrouse.doctor.finding import Finding, fail, ok
from pgrouse.doctor.target import Subject

PROCESS = b"SELECT pg_backend_pid()"
PREPARED = b"SELECT 1 AS prepared_by_pgrouse_doctor"
LOST = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)


def look(subject: Subject) -> Iterator[Finding]:
    """Say what is in between, and whether prepared statements survive it."""
    if not _is_between(subject):
        yield ok("pooler", "there is none in between")
    elif not subject.settings.database.prepare:
        yield ok("pooler", "there is one in between, and no statement is prepared")
    elif _forgets(subject):
        yield fail(
            "pooler",
            "there is a pooler in between that loses prepared statements: workers fail at random",
            "set database.prepare = false, or connect to the server itself",
        )
    else:
        yield ok("pooler", "there is one in between, and it keeps prepared statements")


def _is_between(subject: Subject) -> bool:
    with subject.reading() as conn:
        return conn.execute(PROCESS).fetchone() != (conn.info.backend_pid,)


def _forgets(subject: Subject) -> bool:
    """Prepare a statement, let another client take the session that it was prepared in, and use it again."""
    with subject.connect() as first, subject.connect() as second, subject.bounded(first), subject.bounded(second):
        first.prepare_threshold = 0
        try:
            first.execute(PREPARED)
            with second.transaction():
                second.execute(PROCESS)
                first.execute(PREPARED)
        except LOST:
            return True
        except psycopg.OperationalError:
            # The pooler has one session for all, and that is taken: then what is prepared stays there.
            return False
        return False
