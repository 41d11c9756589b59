"""Runs the steps of a loop, waits between them, and handles their failures.

No other place handles the failures of a loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import psycopg

from pgrouse.database.database_errors import CONNECTION_ERRORS, explain
from pgrouse.errors import DatabaseUnreachable, ExitCode
from pgrouse.process.backoff import FailureLog
from pgrouse.process.new_thread import call_in_new_thread

if TYPE_CHECKING:
    from pgrouse.process.shutdown import Shutdown


# A cancelled statement waits for the server, for many seconds if the server does not answer. If it is cancelled again,
# it drops its connection.
CANCEL_STATEMENT_S = 1.0


class Loop(Protocol):
    """A part of the daemon that repeats one step."""

    name: str

    async def step(self) -> float:
        """Run once; return how many seconds to wait before the next time."""

    async def reset(self) -> None:
        """A step failed: close the connection, so that the next step opens a new one."""


async def run(loop: Loop) -> None:
    """Run a loop until its task is cancelled. An error that is not one of the database is a bug and ends the daemon."""
    failures = FailureLog(loop.name)
    try:
        while True:
            try:
                pause = await loop.step()
                failures.recovered()
            except CONNECTION_ERRORS as error:
                pause = failures.failed(error)
                await loop.reset()
            if pause > 0:
                await asyncio.sleep(pause)
    finally:
        await loop.reset()


async def end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel the tasks of loops. A task that waits for the server is cancelled again if the answer does not come soon.

    Exceptions of the tasks are not raised here.
    """
    waiting: Collection[asyncio.Task[Any]] = tasks
    for _ in range(2):
        for each in waiting:
            each.cancel()
        if waiting:
            _, waiting = await asyncio.wait(waiting, timeout=CANCEL_STATEMENT_S)
    await asyncio.gather(*(each for each in tasks if each.done()), return_exceptions=True)


async def wait_for_database(check: Callable[[], None], shutdown: Shutdown) -> bool:
    """Call `check` in a thread until the database answers; return False if asked to stop in the meantime.

    Raises:
        SchemaMismatch, ConfigError, and database errors that mean a wrong configuration: waiting cannot fix these.
    """
    failures = FailureLog("start")
    while not shutdown.requested.is_set():
        try:
            if await _finishes_before_shutdown(shutdown, check):
                return True
        except (DatabaseUnreachable, psycopg.OperationalError) as error:
            if explain(error)[1] == ExitCode.BAD_CONFIG:
                raise
            await shutdown.within(failures.failed(error))
    return False


async def _finishes_before_shutdown(shutdown: Shutdown, check: Callable[[], None]) -> bool:
    """Call `check` in a thread; return False if a shutdown is requested first, and drop the check's result then."""
    check_done = asyncio.ensure_future(call_in_new_thread(check))
    stop_requested = asyncio.ensure_future(shutdown.requested.wait())
    await asyncio.wait([check_done, stop_requested], return_when=asyncio.FIRST_COMPLETED)
    stop_requested.cancel()
    if not check_done.done():
        check_done.add_done_callback(lambda it: it.cancelled() or it.exception())
        return False
    check_done.result()
    return True
