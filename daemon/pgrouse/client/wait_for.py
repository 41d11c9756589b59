"""Wait for the end of a message without polling: the end of a message notifies those that wait for it.

`wait_for(dsn, message_id, timeout)` returns how it ended. Instead of a connection string it takes an idle autocommit connection, which this
wait then uses alone; on an AsyncConnection the result is awaited.
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
from pydantic_core import from_json

from pgrouse import search_path
from pgrouse.client.call import Call, run, run_async, value
from pgrouse.client.calls import wake as calls
from pgrouse.config import duration
from pgrouse.config.duration import AnyDuration
from pgrouse.errors import MessageNotFound

LISTEN, UNLISTEN = b"LISTEN settled", b"UNLISTEN settled"
PROCESS: Call[int] = Call(b"SELECT pg_catalog.pg_backend_pid()", [], value)
# A call registers the waiter for two minutes and is repeated each minute: a lost notification costs a minute, and a waiter that died is soon dropped.
REGISTER_FOR = timedelta(minutes=2)
CHECK_EVERY_S = 60.0
POLL_EVERY_S = 1.0
THROUGH_A_POOLER = "wait_for is connected through a pooler, where no notification arrives: it polls each second; connect to the server itself"

AnyConnection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
# What a wait asks for: a call, answered with its result; or so many seconds of listening, answered with the payloads of the notifications.
_Request = Call[Any] | float


@dataclass(frozen=True, slots=True)
class MessageResult:
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
    where: str | psycopg.Connection[Any], message_id: int, timeout: AnyDuration | None = None
) -> MessageResult: ...


@overload
def wait_for(
    where: psycopg.AsyncConnection[Any], message_id: int, timeout: AnyDuration | None = None
) -> Coroutine[Any, Any, MessageResult]: ...


def wait_for(
    where: str | AnyConnection,
    message_id: int,
    timeout: AnyDuration | None = None,
) -> MessageResult | Coroutine[Any, Any, MessageResult]:
    """Wait until a message has ended, and return how; await it on an AsyncConnection.

    A message that is retried has not ended; one that is redriven has, and its successor is another message.

    Args:
        where: a connection string, or a connection in autocommit mode that nothing else uses meanwhile. It must lead to the server
            itself: through a pooler no notification arrives; then this warns and polls each second.
        message_id: what publish returned. The publish must be committed.
        timeout: how long to wait at most: a timedelta, seconds, or "5s"; None = as long as it takes.

    Raises:
        TimeoutError: it has not ended by then. It goes on; so can the waiting, by another call.
        MessageNotFound: it was never published, or ended and nothing of it is kept.
        psycopg.Error: no right to call messages.wait_for, or no connection.
    """
    wait = _WaitProtocol(message_id, timeout)
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
            "wait_for needs a connection in autocommit mode: in a transaction no notification arrives, and the end would wait for the waiter"
        )


class _WaitProtocol:
    """The protocol of one wait, without input and output.

    Args:
        message_id: for whose end.
        timeout: how long at most; None = as long as it takes.
    """

    def __init__(self, message_id: int, timeout: AnyDuration | None) -> None:
        self.message_id = int(message_id)
        self.timeout = None if timeout is None else duration.to_timedelta(timeout, "timeout")
        self.deadline = time.monotonic() + (math.inf if self.timeout is None else self.timeout.total_seconds())

    def steps(self, connected_to: int) -> Generator[_Request, Any, MessageResult]:
        """Yield what is to be done next, take what came of it, return the ending. connected_to: the server process that libpq knows."""
        process = yield PROCESS
        pause_s = CHECK_EVERY_S if process == connected_to else POLL_EVERY_S
        if process != connected_to:
            warnings.warn(THROUGH_A_POOLER, RuntimeWarning, stacklevel=4)
        was_seen = False
        while (end := (yield calls.wait_for(self.message_id, REGISTER_FOR))) and end.result is None:
            was_seen = True
            if time.monotonic() >= self.deadline:
                raise TimeoutError(f"message {self.message_id} had not ended after {self.timeout}")
            yield from self._listen(pause_s)
        return self._result(end, was_seen)

    def _listen(self, pause_s: float) -> Generator[_Request, Any, None]:
        """Listen until the end of the message is notified, at most until the next query or the deadline."""
        until = min(time.monotonic() + pause_s, self.deadline)
        while (left := until - time.monotonic()) > 0:
            notified = yield left
            if str(self.message_id) in notified:
                return

    def _result(self, end: calls.EndOfMessage | None, was_seen: bool) -> MessageResult:
        if end is not None and end.result is not None:
            output = end.output_json and from_json(end.output_json)
            return MessageResult(self.message_id, end.result, output, end.error, end.attempts, end.archived_at)
        if was_seen:
            # Only a success can leave nothing behind.
            return MessageResult(self.message_id, "success")
        raise MessageNotFound(
            f"there is no message {self.message_id}: it was never published, its publish is not committed, or nothing of it is kept"
        )


def _run(conn: psycopg.Connection[Any], wait: _WaitProtocol) -> MessageResult:
    steps = wait.steps(conn.info.backend_pid)
    answer: Any = None
    try:
        conn.execute(LISTEN)
        while True:
            answer = _do(conn, steps.send(answer))
    except StopIteration as end:
        return cast("MessageResult", end.value)
    finally:
        with suppress(psycopg.Error):
            conn.execute(UNLISTEN)


def _do(conn: psycopg.Connection[Any], request: _Request) -> Any:
    if isinstance(request, float):
        return [each.payload for each in conn.notifies(timeout=request, stop_after=1)]
    return run(conn, request)


async def _run_async(conn: psycopg.AsyncConnection[Any], wait: _WaitProtocol) -> MessageResult:
    steps = wait.steps(conn.info.backend_pid)
    answer: Any = None
    try:
        await conn.execute(LISTEN)
        while True:
            answer = await _do_async(conn, steps.send(answer))
    except StopIteration as end:
        return cast("MessageResult", end.value)
    finally:
        with suppress(psycopg.Error):
            await conn.execute(UNLISTEN)


async def _do_async(conn: psycopg.AsyncConnection[Any], request: _Request) -> Any:
    if isinstance(request, float):
        return [each.payload async for each in conn.notifies(timeout=request, stop_after=1)]
    return await run_async(conn, request)
