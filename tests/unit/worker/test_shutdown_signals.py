"""The one that asked a daemon to stop, and how often."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

from pgrouse.process.shutdown_signals import ShutdownSignals
from pgrouse.process.wake_event import WakeEvents


async def test_a_stop_after_a_reload_is_a_first_stop_and_ends_the_daemon() -> None:
    shutdown = ShutdownSignals(WakeEvents(), accept)
    shutdown.on_signal(signal.SIGHUP)
    await shutdown.requested.wait()
    assert shutdown.is_reload

    shutdown.on_signal(signal.SIGTERM)

    assert (shutdown.is_reload, shutdown.is_immediate) == (False, False)


async def test_many_sighups_are_one_check_at_a_time_and_one_more_for_those_that_came_during_it() -> None:
    checks: list[asyncio.Future[bool]] = []

    async def check() -> bool:
        checks.append(asyncio.get_running_loop().create_future())
        return await checks[-1]

    shutdown = ShutdownSignals(WakeEvents(), check)
    for _ in range(3):
        shutdown.on_signal(signal.SIGHUP)
        await asyncio.sleep(0)
    assert len(checks) == 1

    checks[0].set_result(False)
    while len(checks) == 1:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0)
    checks[1].set_result(True)
    await shutdown.requested.wait()

    assert len(checks) == 2


async def accept() -> bool:
    return True


# The interpreter deletes it after it has restored its signals.
LATE = """
import os, signal
from pgrouse.process import stop_signals

class Late:
    def __del__(self, kill=os.kill, me=os.getpid(), which=signal.SIGTERM):
        kill(me, which)

stop_signals.take()
late = Late()
"""


def test_a_signal_that_comes_while_the_interpreter_ends_does_not_change_the_exit_code() -> None:
    assert subprocess.run([sys.executable, "-c", LATE], check=False).returncode == 0
