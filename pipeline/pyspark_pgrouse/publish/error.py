"""The meaning of the server's errors when a job publishes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from pgrouse.errors import (
    ConfigError,
    DatabaseUnreachable,
    ExitCode,
    PgrouseError,
    PublishRateExceeded,
    PublishRejected,
    TopicFull,
)
from pyspark_pgrouse.executors import PGROUSE_ERROR, pgrouse_error


class StageLost(PublishRejected):
    """Staged rows no longer exist: nothing was published, and the job can be run again."""

    sqlstate = "PGR06"
    exit_code = ExitCode.TRY_AGAIN


class TooManyRejected(PublishRejected):
    """More rows than allowed cannot be published: nothing was published."""

    sqlstate = "PGR07"


class ServerFull(PgrouseError):
    """The server has no room left: nothing was published, and the job can be run again."""

    exit_code = ExitCode.TRY_AGAIN


DISK_FULL = "53100"
# Broken connections, and connections that the server ended.
CONNECTION_LOST = ("08", "57P")
KINDS: dict[str, type[PgrouseError]] = {
    **{kind.sqlstate: kind for kind in (TopicFull, PublishRateExceeded, StageLost, TooManyRejected)},
    "42501": ConfigError,
}
NAMES = {kind.__name__: kind for kind in (*KINDS.values(), ServerFull)}
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
    return KINDS.get(error.sqlstate, PgrouseError)(said)


def error_from_spark(error: Exception) -> Exception:
    """Return the pgrouse error that made Spark fail; the given error if there was none."""
    found = PGROUSE_ERROR.findall(str(error))
    if not found:
        return error
    name, said = found[-1]
    return NAMES[name](said) if name in NAMES else pgrouse_error(str(error)) or error
