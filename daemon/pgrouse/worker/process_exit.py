"""Ends a daemon's process, even if handlers left behind threads that never end, or called sys.exit."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NoReturn

from pgrouse.errors import ExitCode
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.process import standard_streams, stop_signals

# After the last settle: how long threads and tasks that handlers started may take to end.
EXIT_S = 3.0


def run_until_done(
    runner: asyncio.Runner, work: Coroutine[Any, Any, ExitCode], on_handler_exit: Callable[[BaseException], None]
) -> ExitCode:
    """Run a daemon until it ends; return its exit code.

    A task that calls sys.exit stops the event loop and everything on it. Only that task should end, so the others are
    resumed.

    Args:
        runner: creates the event loop.
        work: the daemon.
        on_handler_exit: called with the exception that stopped the loop; makes the work end soon.
    """
    task = runner.get_loop().create_task(work, name="daemon")
    while True:
        try:
            return runner.run(_wait_for(task))
        except (SystemExit, KeyboardInterrupt) as error:
            if task.cancelled():  # Ctrl-C, before the daemon installed its signal handlers
                raise
            if task.done():
                log.critical(events.LOOP_CRASHED, exc_info=error)
                exit_now(ExitCode.FOUND_A_PROBLEM, restart=False)
            on_handler_exit(error)


async def _wait_for(task: asyncio.Task[ExitCode]) -> ExitCode:
    return await task


def exit_after(seconds: float, end: Callable[[], None]) -> threading.Timer:
    """Call the function that ends the process if the process still lives after this time.

    It is called whatever the event loop waits for. Return a timer to cancel.
    """
    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    return timer


def exit_soon(code: int, *, restart: bool) -> None:
    """Let the process end by itself, and end it after EXIT_S, or at a signal.

    The interpreter waits for every thread.
    """
    stop_signals.deliver_to(partial(stop_signals.end_at_once, code=code))
    exit_after(EXIT_S, partial(exit_now, code, restart=restart))


def exit_now(code: int, *, restart: bool) -> None:
    """End the process although handlers that cannot be stopped still run. Their messages have been released."""
    standard_streams.flush()
    if restart:
        reexec()
    os._exit(code)


def reexec() -> NoReturn:
    """Replace this process by a new daemon: the same command line, with the current code and configuration."""
    stop_signals.prepare_exec()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - our own command line
