"""Wait for the end of a message, without polling: the end rings, and rings only because somebody waits.

`wait_for(dsn, message_id, timeout)` returns how it ended. Instead of a connection string it takes an idle autocommit connection, which is
then this wait's alone; on an AsyncConnection the result is something to await.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Coroutine, Generator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast, overload

import psycopg
from psycopg.rows import tuple_row
from pydantic_core import from_json

from pgrouse.config import duration

from pgrouse.client import search_path
from pgrouse.errors import UnknownMessage

LISTEN, UNLISTEN = b"LISTEN settled", b"UNLISTEN settled"
PROCESS = b"SELECT pg_catalog.pg_backend_pid()"
# A call is good for two minutes and made anew each minute: a notification that is lost costs a minute, and who dies is soon forgotten.
LOOK = b"SELECT w.result, w.output::pg_catalog.text, w.error, w.attempts, w.archived_at FROM messages.wait_for(%s, '2 minutes') AS w"
LOOK_EVERY_S = 60.0
POLL_EVERY_S = 1.0
THROUGH_A_POOLER = "wait_for is connected through a pooler, where no notification arrives: it looks each second; connect to the server itself"

AnyConnection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
# What a wait asks for: a query and its values, answered with its first row; or so many seconds of listening, answered with what was heard.
Request = tuple[bytes, list[Any]] | float


@dataclass(frozen=True, slots=True)
class Ending:
    """How a message ended.

    Attributes:
        id: the message.
        result: success, rejected, failed, lock_expired, expired or cancelled.
        output: what its handler returned.
        error: why it is no success.
        attempts: how many there were; None if nothing of the message is kept.
        archived_at: when it ended; None if nothing of it is kept.
    """

    id: int
    result: str
    output: Any = None
    error: str | None = None
    attempts: int | None = None
    archived_at: datetime | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the result is success."""
        return self.result == "success"


@overload
def wait_for(
    where: str | psycopg.Connection[Any], message_id: int, timeout: timedelta | float | None = None
) -> Ending: ...


@overload
def wait_for(
    where: psycopg.AsyncConnection[Any], message_id: int, timeout: timedelta | float | None = None
) -> Coroutine[Any, Any, Ending]: ...


def wait_for(
    where: str | AnyConnection,
    message_id: int,
    timeout: timedelta | float | None = None,
) -> Ending | Coroutine[Any, Any, Ending]:
    """Wait until a message has ended, and return how; await it on an AsyncConnection.

    A message that is retried has not ended; one that is redriven has, and its successor is another message.

    Args:
        where: a connection string, or a connection in autocommit mode that nobody else uses meanwhile. It must lead to the server
            itself: through a pooler no notification arrives; then this warns and looks each second.
        message_id: what publish returned. The publish must be committed.
        timeout: how long to wait at most, a timedelta or seconds; None = as long as it takes.

    Raises:
        TimeoutError: it has not ended by then. It goes on; so can the waiting, by another call.
        UnknownMessage: it was never published, or ended and nothing of it is kept.
        psycopg.Error: no right to call messages.wait_for, or no connection.
    """
    wait = Wait(message_id, timeout)
    match where:
        case str():
            with search_path.fix(psycopg.connect(where, autocommit=True)) as conn:
                return _run(conn, wait)
        case psycopg.AsyncConnection():
            _refuse_transactions(where)
            return _run_async(where, wait)
        case psycopg.Connection():
            _refuse_transactions(where)
            return _run(where, wait)
        case _:
            raise TypeError(
                f"wait_for needs a connection string, a psycopg Connection or an AsyncConnection, not a {type(where).__qualname__}"
            )


def _refuse_transactions(conn: AnyConnection) -> None:
    if not conn.autocommit:
        raise ValueError(
            "wait_for needs a connection in autocommit mode: in a transaction nothing is heard, and the end would wait for the waiter"
        )


class Wait:
    """The course of one wait, without input and output.

    Args:
        message_id: for whose end.
        timeout: how long at most; None = as long as it takes.
    """

    def __init__(self, message_id: int, timeout: timedelta | float | None) -> None:
        self.message_id = int(message_id)
        self.timeout = None if timeout is None else duration.given(timeout, "timeout")
        self.deadline = time.monotonic() + (math.inf if self.timeout is None else self.timeout.total_seconds())

    def course(self, connected_to: int) -> Generator[Request, Any, Ending]:
        """Yield what is to be done next, take what came of it, return the ending. connected_to: the server process that libpq knows."""
        yield LISTEN, []
        (process,) = yield PROCESS, []
        pause_s = LOOK_EVERY_S if process == connected_to else POLL_EVERY_S
        if process != connected_to:
            warnings.warn(THROUGH_A_POOLER, RuntimeWarning, stacklevel=4)
        lived = False
        while (row := (yield LOOK, [self.message_id])) and row[0] is None:
            lived = True
            if time.monotonic() >= self.deadline:
                raise TimeoutError(f"message {self.message_id} had not ended after {self.timeout}")
            yield from self._hear(pause_s)
        return self._ending(row, lived)

    def _hear(self, pause_s: float) -> Generator[Request, Any, None]:
        """Listen until the message's end rings, at most until it is time to look or to give up."""
        until = min(time.monotonic() + pause_s, self.deadline)
        while (left := until - time.monotonic()) > 0:
            heard = yield left
            if str(self.message_id) in heard:
                return

    def _ending(self, row: tuple[Any, ...] | None, lived: bool) -> Ending:
        if row is not None:
            result, output, error, attempts, archived_at = row
            return Ending(self.message_id, result, output and from_json(output), error, attempts, archived_at)
        if lived:
            # Only a success can leave nothing behind.
            return Ending(self.message_id, "success")
        raise UnknownMessage(
            f"there is no message {self.message_id}: it was never published, its publish is not committed, or nothing of it is kept"
        )


def _run(conn: psycopg.Connection[Any], wait: Wait) -> Ending:
    course = wait.course(conn.info.backend_pid)
    answer: Any = None
    try:
        while True:
            answer = _do(conn, course.send(answer))
    except StopIteration as end:
        return cast("Ending", end.value)
    finally:
        with suppress(psycopg.Error):
            conn.execute(UNLISTEN)


def _do(conn: psycopg.Connection[Any], request: Request) -> Any:
    if isinstance(request, float):
        return [each.payload for each in conn.notifies(timeout=request, stop_after=1)]
    cursor = psycopg.Cursor(conn, row_factory=tuple_row).execute(*request)
    return cursor.fetchone() if cursor.description else None


async def _run_async(conn: psycopg.AsyncConnection[Any], wait: Wait) -> Ending:
    course = wait.course(conn.info.backend_pid)
    answer: Any = None
    try:
        while True:
            answer = await _do_async(conn, course.send(answer))
    except StopIteration as end:
        return cast("Ending", end.value)
    finally:
        with suppress(psycopg.Error):
            await conn.execute(UNLISTEN)


async def _do_async(conn: psycopg.AsyncConnection[Any], request: Request) -> Any:
    if isinstance(request, float):
        return [each.payload async for each in conn.notifies(timeout=request, stop_after=1)]
    cursor = await psycopg.AsyncCursor(conn, row_factory=tuple_row).execute(*request)
    return await cursor.fetchone() if cursor.description else None
