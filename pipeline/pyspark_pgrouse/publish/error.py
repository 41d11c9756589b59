"""What the server's errors mean when a job publishes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pgrouse.errors import (
    ConfigError,
    DatabaseUnreachable,
    ExitCode,
    NotAdmitted,
    PgrouseError,
    PublishRateExceeded,
    TopicFull,
)

if TYPE_CHECKING:
    import psycopg


class StageLost(NotAdmitted):
    """Rows that were staged are not there any more: nothing was published, and the job can be run again."""

    sqlstate = "PGR06"
    exit_code = ExitCode.TRY_AGAIN


class TooManyRejected(NotAdmitted):
    """More rows cannot be published than would be let pass: nothing was published."""

    sqlstate = "PGR07"


class ServerFull(PgrouseError):
    """The server has no room left: nothing was published, and the job can be run again."""

    exit_code = ExitCode.TRY_AGAIN


DISK_FULL = "53100"
# Connections that broke, and those that the server ended.
GONE = ("08", "57P")
KINDS: dict[str, type[PgrouseError]] = {
    **{kind.sqlstate: kind for kind in (TopicFull, PublishRateExceeded, StageLost, TooManyRejected)},
    "42501": ConfigError,
}
NAMES = {kind.__name__: kind for kind in (*KINDS.values(), ServerFull)}
AGAIN = "nothing was published, run the job again with the same key"


@contextmanager
def in_our_words() -> Iterator[None]:
    """Raise what the server says, or that it is gone, as errors of our own."""
    import psycopg  # noqa: PLC0415 - executors load it when they connect

    try:
        yield
    except psycopg.Error as error:
        raise _meaning(error) from error


def _meaning(error: psycopg.Error) -> PgrouseError:
    said = ": ".join(filter(None, [error.diag.message_primary, error.diag.message_hint])) or str(error).strip()
    if error.sqlstate is None or error.sqlstate.startswith(GONE):
        return DatabaseUnreachable(f"the connection was lost ({said}): {AGAIN}")
    if error.sqlstate == DISK_FULL:
        return ServerFull(f"the server's disk is full ({said}): make room; {AGAIN}")
    return KINDS.get(error.sqlstate, PgrouseError)(said)


def told_by_spark(error: Exception) -> Exception:
    """Return the error of ours that made Spark fail; itself if it was none."""
    from pyspark_pgrouse.executors import OWN, own_error  # noqa: PLC0415 - tasks do without it

    found = OWN.findall(str(error))
    if not found:
        return error
    name, said = found[-1]
    return NAMES[name](said) if name in NAMES else own_error(str(error)) or error
