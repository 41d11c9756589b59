"""Runs the steps of a loop, waits between them, and handles their failures: the one place where a loop's failures are handled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import psycopg
import structlog

from pgrouse import events
from pgrouse.backoff import backoff_s, log_failure
from pgrouse.errors import DatabaseUnreachable

if TYPE_CHECKING:
    from pgrouse.worker.shutdown_signals import ShutdownSignals

log = structlog.get_logger()

# The errors of a database that is unreachable, restarting, overloaded or failed over. Any other error is a bug and ends the daemon.
TRANSIENT = (psycopg.Error, OSError, TimeoutError)


class Loop(Protocol):
    """A part of the daemon that repeats one step."""

    name: str

    async def step(self) -> float:
        """Run once; return how many seconds to wait before the next time."""

    async def reset(self) -> None:
        """A step failed: close the connection, so that the next step opens a new one."""


async def run(loop: Loop) -> None:
    """Run a loop until its task is cancelled."""
    failures = 0
    try:
        while True:
            try:
                pause = await loop.step()
            except TRANSIENT as error:
                failures += 1
                pause = backoff_s(failures)
                log_failure(loop.name, failures, error)
                await loop.reset()
            else:
                if failures:
                    log.info(events.LOOP_RECOVERED, loop=loop.name, failures=failures)
                failures = 0
            if pause > 0:
                await asyncio.sleep(pause)
    finally:
        await loop.reset()


async def wait_for_database(check: Callable[[], None], shutdown: ShutdownSignals) -> bool:
    """Call `check` in a thread until the database answers; return False if told to stop meanwhile.

    Raises:
        SchemaMismatch, ConfigError: waiting cannot fix these.
    """
    failures = 0
    while not shutdown.requested.is_set():
        try:
            if await _finishes_before_shutdown(shutdown, check):
                return True
        except (DatabaseUnreachable, psycopg.OperationalError) as error:
            failures += 1
            log_failure("start", failures, error)
            await shutdown.within(backoff_s(failures))
    return False


async def _finishes_before_shutdown(shutdown: ShutdownSignals, check: Callable[[], None]) -> bool:
    """Call `check` in a thread; return False if a shutdown is requested first, and drop the check's result then."""
    check_done = asyncio.ensure_future(asyncio.to_thread(check))
    stop_requested = asyncio.ensure_future(shutdown.requested.wait())
    await asyncio.wait([check_done, stop_requested], return_when=asyncio.FIRST_COMPLETED)
    stop_requested.cancel()
    if not check_done.done():
        check_done.add_done_callback(lambda it: it.cancelled() or it.exception())
        return False
    check_done.result()
    return True
