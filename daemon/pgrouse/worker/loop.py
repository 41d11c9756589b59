"""The one `while` of the daemon: runs a loop's steps, waits between them, and is the one place where their failures are handled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import psycopg
import structlog

from pgrouse import events
from pgrouse.errors import DatabaseUnreachable

if TYPE_CHECKING:
    from pgrouse.worker.shutdown_signals import Stop

log = structlog.get_logger()

BACKOFF_FIRST_S = 0.1
BACKOFF_LAST_S = 15.0
# What a database that is away, restarting, overloaded or failed over looks like. Anything else is a bug and ends the daemon.
TRANSIENT = (psycopg.Error, OSError, TimeoutError)


class Loop(Protocol):
    """A part of the daemon that does the same thing again and again."""

    name: str

    async def step(self) -> float:
        """Do it once; return how many seconds to wait before the next time."""

    async def reset(self) -> None:
        """A step failed: drop the connection, so that the next one begins with a new one."""


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
                tell(loop.name, failures, error)
                await loop.reset()
            else:
                if failures:
                    log.info(events.LOOP_RECOVERED, loop=loop.name, failures=failures)
                failures = 0
            if pause > 0:
                await asyncio.sleep(pause)
    finally:
        await loop.reset()


async def until_the_database_answers(check: Callable[[], None], stop: Stop) -> bool:
    """Call `check` in a thread until the database is there for it; return False if told to stop meanwhile.

    Raises:
        SchemaMismatch, ConfigError: what no waiting mends.
    """
    failures = 0
    while not stop.requested.is_set():
        try:
            if await _is_done_before(stop, check):
                return True
        except (DatabaseUnreachable, psycopg.OperationalError) as error:
            failures += 1
            tell("start", failures, error)
            await stop.within(backoff_s(failures))
    return False


async def _is_done_before(stop: Stop, check: Callable[[], None]) -> bool:
    """Call `check` in a thread; a stop does not wait for it, and nobody then asks what became of it."""
    checking = asyncio.ensure_future(asyncio.to_thread(check))
    told = asyncio.ensure_future(stop.requested.wait())
    await asyncio.wait([checking, told], return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if not checking.done():
        checking.add_done_callback(lambda it: it.cancelled() or it.exception())
        return False
    checking.result()
    return True


def backoff_s(failures: int) -> float:
    """Return how long to wait after so many failures in a row: doubling, with full jitter above a floor."""
    most = min(BACKOFF_LAST_S, BACKOFF_FIRST_S * 2 ** min(failures, 10))
    return random.uniform(BACKOFF_FIRST_S, most)  # noqa: S311 - nothing to guess


def tell(name: str, failures: int, error: BaseException) -> None:
    """Log the first failure of a row, and then every time their number doubles."""
    if failures & (failures - 1) == 0:
        reason = " ".join(str(error).split()) or type(error).__name__
        log.warning(events.LOOP_FAILED, loop=name, failures=failures, reason=reason)
