"""Wait for the end of one message, on a connection string or on the caller's connection.

Where the connection can listen, the end of the message notifies it: a connection string, or an idle autocommit
connection of psycopg, which this wait then uses alone. On all others this asks again and again. For many waits at once
see `Waiter`.
"""

from __future__ import annotations

import asyncio
import math
import time
import warnings
from collections.abc import Coroutine, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast, overload

import psycopg
from psycopg.conninfo import conninfo_to_dict, timeout_from_conninfo
from psycopg.errors import SerializationFailure
from psycopg.pq import TransactionStatus

from pgrouse.client.call import Call, run, run_async
from pgrouse.client.calls.processing import wake as calls
from pgrouse.client.connection.closed_after import closed_after
from pgrouse.client.waiting.message_result import LISTEN, PROCESS, REGISTER_FOR, UNLISTEN, MessageResult, Wait
from pgrouse.client.waiting.waiter import refuse_on_event_loop
from pgrouse.config.duration import AnyDuration
from pgrouse.database import session_settings
from pgrouse.database.connection_schema import rendering
from pgrouse.publishing.drivers import find_driver
from pgrouse.publishing.new_message import FIRST
from pgrouse.publishing.statement import Statement

if TYPE_CHECKING:
    from pgrouse.publishing.drivers.connection_types import AnyAsyncConnection, AnyBlockingConnection
    from pgrouse.publishing.drivers.driver import Driver

# A call registers the wait for two minutes and is repeated each minute: a lost notification costs a minute, and a
# waiter that died is soon dropped.
CHECK_EVERY_S = 60.0
POLL_EVERY_S = 1.0
# The interval for a message that is locked now: it is about to end.
ENDING_S = 0.05
# Where nothing notifies: from the first to the longest pause between two looks.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 1.0
THROUGH_A_POOLER = (
    "wait_for is connected through a pooler, where no notification arrives: it polls each second; "
    "connect to the server itself"
)

TRANSACTION = Statement(
    "SELECT pg_catalog.current_setting('transaction_isolation'), "
    "pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text",
    {},
)
# A wait asks for a call, answered with its result, or for some seconds of listening, answered with the payloads of the
# notifications.
_Request = Call[Any] | float


@overload
def wait_for(  # type: ignore[overload-overlap]  # an async connection of SQLAlchemy has all that a blocking one has
    where: AnyAsyncConnection, message_id: int, timeout: AnyDuration | None = None
) -> Coroutine[Any, Any, MessageResult]: ...


@overload
def wait_for(
    where: str | AnyBlockingConnection, message_id: int, timeout: AnyDuration | None = None
) -> MessageResult: ...


def wait_for(
    where: Any, message_id: int, timeout: AnyDuration | None = None
) -> MessageResult | Coroutine[Any, Any, MessageResult]:
    """Wait until a message has ended, and return how; await it on an async connection.

    A message that is retried has not ended; one that is redriven has, and its successor is another message.

    Args:
        where: a connection string; or a connection of psycopg, SQLAlchemy, Django or asyncpg that nothing else uses in
            the meantime. A connection string, and a connection of psycopg in autocommit mode, must lead to the server
            itself: through a pooler no notification arrives; then this warns and polls each second. On the others it
            polls, with pauses from 10 ms to 1 s.
        message_id: what publish returned. The publish must be committed.
        timeout: how long to wait at most: a timedelta, seconds, or "5s"; None = as long as it takes. If the server does
            not answer, a wait that listens ends 5 s later, and closes its connection; one that polls depends on the
            driver.

    Raises:
        TimeoutError: it has not ended by then. It goes on; so can the waiting, by another call.
        MessageNotFound: it was never published, or ended and nothing of it is kept.
        ResultForbidden: this role may not know its result: it is neither an operator, nor published it with
            `expect_result`.
        ValueError: the connection's transaction has written something, or is above READ COMMITTED: it would never see
            the end.
        RuntimeError: the connection is a blocking one, and an event loop runs in this thread.
        psycopg.Error, or that of the other drivers: no connection.
        TypeError: the connection is none of these.
    """
    wait = Wait(message_id, timeout)
    if isinstance(where, psycopg.AsyncConnection) and _can_listen(where):
        return _run_async(where, wait)
    driver = None if isinstance(where, str) else find_driver(where)
    if driver is not None and driver.is_async:
        return _poll(driver, wait)
    if driver is None and not isinstance(where, str):
        raise TypeError(
            "wait_for needs a connection string, or a connection of psycopg, SQLAlchemy (Connection, "
            "Session and their async kinds), "
            f"Django or asyncpg, not a {type(where).__qualname__}"
        )
    refuse_on_event_loop("wait_for", "an async connection, or await Waiter.ended()")
    if isinstance(where, str):
        with _ending_in_time(wait), _connect(where, wait) as conn:
            return _run(conn, wait)
    if isinstance(where, psycopg.Connection) and _can_listen(where):
        return _run(where, wait)
    return cast("Driver", driver).run(_poll(cast("Driver", driver), wait))


@contextmanager
def _ending_in_time(wait: Wait) -> Iterator[None]:
    """Raise the TimeoutError of a wait where its connection fails after its time."""
    try:
        yield
    except psycopg.OperationalError as error:
        if wait.left_s() == 0:
            raise wait.expired() from error
        raise


def _connect(dsn: str, wait: Wait) -> psycopg.Connection[Any]:
    """Connect for a wait, and take no longer than it may."""
    limits: dict[str, Any] = {}
    if (bound_s := wait.bound_s()) is not None:
        # libpq takes whole seconds, and at least two.
        given_s = timeout_from_conninfo(conninfo_to_dict(dsn))
        limits["connect_timeout"] = min(given_s, max(2, math.ceil(bound_s)))
    conn = psycopg.connect(dsn, autocommit=True, **limits)
    with _closed_in_time(wait, conn):
        return session_settings.set_up(conn)


def _closed_in_time(
    wait: Wait, conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
) -> AbstractContextManager[None]:
    """Close a connection on which the server does not answer the last look of a wait."""
    bound_s = wait.bound_s()
    return nullcontext() if bound_s is None else closed_after(bound_s, conn)


def _can_listen(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether notifications arrive on a connection.

    In a transaction there are none, and the end would wait for the waiter.
    """
    return conn.autocommit and conn.info.transaction_status is TransactionStatus.IDLE


async def _poll(driver: Driver, wait: Wait) -> MessageResult:
    """Look again and again. A blocking driver never waits here, so that `run_sync` runs this to its end."""
    isolation, written = await driver.fetch_row(TRANSACTION) or (None, None)
    if isolation != "read committed" or written is not None:
        why = f"is {isolation.upper()}" if isolation != "read committed" else "has written something"
        raise ValueError(
            f"wait_for: the transaction of this connection {why}, so that it would never see the end: "
            "commit it first, or use a Waiter"
        )
    pause_s = FIRST_PAUSE_S
    while (result := wait.take(await _look(driver, wait.message_id))) is None:
        if wait.left_s() == 0:
            raise wait.expired()
        await _pause(driver, min(pause_s, wait.left_s()))
        pause_s = min(1.5 * pause_s, LONGEST_PAUSE_S)
    return result


async def _look(driver: Driver, message_id: int) -> calls.StateOfMessage:
    found = await driver.fetch_row(Statement(calls.LOOK, {"ids": f"{{{message_id}}}"}))
    assert found is not None  # noqa: S101 - there is a row for each id
    archived_at = None if found[-1] is None else FIRST + timedelta(microseconds=found[-1])
    values = (*found[:-1], archived_at)
    return calls.StateOfMessage(*values)


async def _pause(driver: Driver, seconds: float) -> None:
    if driver.is_async:
        await asyncio.sleep(seconds)
    else:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no loop that it would hold up


def _steps(wait: Wait, connected_to: int) -> Generator[_Request, Any, MessageResult]:
    """Yield what is to be done next, take what came of it, return the ending.

    connected_to: the server process that libpq knows.
    """
    process = yield PROCESS
    pause_s = CHECK_EVERY_S if process == connected_to else POLL_EVERY_S
    if process != connected_to:
        warnings.warn(THROUGH_A_POOLER, RuntimeWarning, stacklevel=4)
    while True:
        (row,) = yield calls.wait_for_many([wait.message_id], REGISTER_FOR)
        result = wait.take(row)
        if result is not None:
            return result
        if wait.left_s() == 0:
            raise wait.expired()
        yield from _listen(wait, ENDING_S if row.state == "ending" else pause_s)


def _listen(wait: Wait, pause_s: float) -> Generator[_Request, Any, None]:
    """Listen until the end of the message is notified, at most until the next query or the deadline."""
    until = min(time.monotonic() + pause_s, wait.deadline)
    while (left := until - time.monotonic()) > 0:
        notified = yield left
        if str(wait.message_id) in notified:
            return


def _run(conn: psycopg.Connection[Any], wait: Wait) -> MessageResult:
    steps = _steps(wait, conn.info.backend_pid)
    answer: Any = None
    with _ending_in_time(wait), _closed_in_time(wait, conn):
        try:
            with rendering(conn):
                conn.execute(LISTEN)
            while True:
                answer = _do(conn, steps.send(answer))
        except StopIteration as end:
            return cast("MessageResult", end.value)
        finally:
            with suppress(psycopg.Error), rendering(conn):
                conn.execute(UNLISTEN)


def _do(conn: psycopg.Connection[Any], request: _Request) -> Any:
    if isinstance(request, float):
        return [each.payload for each in conn.notifies(timeout=request, stop_after=1)]
    while True:
        # Above READ COMMITTED, a look that meets the end of the message is repeated.
        with suppress(SerializationFailure):
            return run(conn, request)


async def _run_async(conn: psycopg.AsyncConnection[Any], wait: Wait) -> MessageResult:
    steps = _steps(wait, conn.info.backend_pid)
    answer: Any = None
    with _ending_in_time(wait), _closed_in_time(wait, conn):
        try:
            with rendering(conn):
                await conn.execute(LISTEN)
            while True:
                answer = await _do_async(conn, steps.send(answer))
        except StopIteration as end:
            return cast("MessageResult", end.value)
        finally:
            with suppress(psycopg.Error), rendering(conn):
                await conn.execute(UNLISTEN)


async def _do_async(conn: psycopg.AsyncConnection[Any], request: _Request) -> Any:
    if isinstance(request, float):
        return [each.payload async for each in conn.notifies(timeout=request, stop_after=1)]
    while True:
        with suppress(SerializationFailure):
            return await run_async(conn, request)
