"""The meaning of the server's errors when a job publishes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from pgrouse.errors import ConfigError, DatabaseUnreachable, PgrouseError
from pyspark_pgrouse.errors import REJECTED, ServerFull

DISK_FULL = "53100"
# Broken connections, and connections that the server ended.
CONNECTION_LOST = ("08", "57P")
BY_SQLSTATE: dict[str, type[PgrouseError]] = {**{kind.sqlstate: kind for kind in REJECTED}, "42501": ConfigError}
RETRY_HINT = "nothing was published, run the job again with the same key"


@contextmanager
def translated_errors() -> Iterator[None]:
    """Convert errors of the server and of lost connections to errors of pgrouse."""
    try:
        yield
    except psycopg.Error as error:
        raise _meaning(error) from error


def _meaning(error: psycopg.Error) -> PgrouseError:
    said = ": ".join(filter(None, [error.diag.message_primary, error.diag.message_hint])) or str(error).strip()
    if error.sqlstate is None or error.sqlstate.startswith(CONNECTION_LOST):
        return DatabaseUnreachable(f"the connection was lost ({said}): {RETRY_HINT}")
    if error.sqlstate == DISK_FULL:
        return ServerFull(f"the server's disk is full ({said}): make room; {RETRY_HINT}")
    return BY_SQLSTATE.get(error.sqlstate, PgrouseError)(said)
