"""How the process of a daemon ends: in order, even if handlers have begun what never ends, or told the interpreter to exit."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from pgrouse import events
from pgrouse.errors import ExitCode

log = structlog.get_logger()

# After the last settle: how long threads and tasks that handlers have begun may take to end.
LEAVE_S = 3.0


def run_to_the_end(
    runner: asyncio.Runner, work: Coroutine[Any, Any, ExitCode], exited: Callable[[BaseException], None]
) -> ExitCode:
    """Run a daemon until it ends; return its exit code.

    A task that calls sys.exit stops the event loop with all that runs on it. Only that task is over: the others go on.

    Args:
        runner: makes the loop.
        work: the daemon.
        exited: called with what a task has stopped the loop by; sees to it that the work ends soon.
    """
    task = runner.get_loop().create_task(work, name="daemon")
    while True:
        try:
            return runner.run(_end_of(task))
        except (SystemExit, KeyboardInterrupt) as error:
            if task.cancelled():  # Ctrl-C, before the daemon took the signals over
                raise
            if task.done():
                log.critical(events.LOOP_BROKEN, exc_info=error)
                leave_now(ExitCode.FOUND_A_PROBLEM, anew=False)
            exited(error)


async def _end_of(task: asyncio.Task[ExitCode]) -> ExitCode:
    return await task


def leave_soon(code: int, *, anew: bool) -> None:
    """Let the process end by itself, but no longer than LEAVE_S: the interpreter waits for every thread."""
    timer = threading.Timer(LEAVE_S, leave_now, [code], {"anew": anew})
    timer.daemon = True
    timer.start()


def leave_now(code: int, *, anew: bool) -> None:
    """End the process although handlers run on that cannot be stopped: their messages were given back."""
    sys.stdout.flush()
    sys.stderr.flush()
    if anew:
        begin_anew()
    os._exit(code)


def begin_anew() -> None:
    """Become a new daemon, in this process: the same command, other code and configuration if they changed."""
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - ourselves
