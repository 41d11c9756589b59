"""Whether there is a pooler between, and whether the configuration fits it.

A pooler reports a made-up process id at the connect. In transaction mode each transaction runs in another session of the server, which may
not know statements that were prepared before. That depends on the pooler and its version, so it is tried.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
from psycopg import errors

from pgrouse.doctor.finding import Finding, fail, ok
from pgrouse.doctor.target import DoctorTarget

PROCESS = b"SELECT pg_backend_pid()"
PREPARED = b"SELECT 1 AS prepared_by_pgrouse_doctor"
LOST = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)


def check(target: DoctorTarget) -> Iterator[Finding]:
    """Report whether there is a pooler, and whether prepared statements work through it."""
    if not _has_pooler(target):
        yield ok("pooler", "there is no pooler")
    elif not target.settings.database.prepare:
        yield ok("pooler", "there is a pooler, and no statement is prepared")
    elif _loses_prepared_statements(target):
        yield fail(
            "pooler",
            "the pooler loses prepared statements: workers fail at random",
            "set database.prepare = false, or connect to the server itself",
        )
    else:
        yield ok("pooler", "there is a pooler, and it keeps prepared statements")


def _has_pooler(target: DoctorTarget) -> bool:
    with target.reading() as conn:
        return conn.execute(PROCESS).fetchone() != (conn.info.backend_pid,)


def _loses_prepared_statements(target: DoctorTarget) -> bool:
    """Prepare a statement, let another client take the session that it was prepared in, and use it again."""
    with target.connect() as first, target.connect() as second, target.bounded(first), target.bounded(second):
        first.prepare_threshold = 0
        try:
            first.execute(PREPARED)
            with second.transaction():
                second.execute(PROCESS)
                first.execute(PREPARED)
        except LOST:
            return True
        except psycopg.OperationalError:
            # The pooler has a single session, and that is in use: then prepared statements stay there.
            return False
        return False
