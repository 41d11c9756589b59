"""The process of a child and the pipe to it, as its thread in the daemon uses them.

Each wait ends when the process ends or is asked to end.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait

from pgrouse.process import standard_streams, stop_signals
from pgrouse.worker.child.child_server import END, ChildAnswer, serve

NAME = "pgrouse-child"
CONTEXT = multiprocessing.get_context("spawn")
# A process that does not end within this time after it is asked to is killed.
TERMINATE_S = 3.0
POLL_S = 0.02
# How long a process may take to import its handler, and to start a call while it is idle.
START_S = 600.0
TAKE_S = 60.0
# The most that one call of poll() can wait is 24 days.
MAX_WAIT_S = 86_400.0
STOPPED = "the handler's process was stopped"
NOT_TAKEN = (
    "the handler's process did not start the handler in time: a thread that an earlier message left there may "
    "hold the interpreter"
)
BROKEN_OFF = (
    "the handler's process did not finish its answer, and was killed: "
    "it was stopped, or closed its connection to the daemon"
)
DIED_UNOBSERVED = "the handler's process died before it could report whether the handler had started"


class ChildDied(Exception):
    """A process ended before it answered.

    Args:
        reason: a sentence about it.
        exit_code: of the process, negative for a signal; None = it is not known whether it had started the call.
    """

    def __init__(self, reason: str, exit_code: int | None = None) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


class ChildGone(ChildDied):
    """A process ended before the call was sent: another process can make the call."""


class ChildLink:
    """A process and the pipe to it.

    Args:
        initialize: called there first; can be imported there.
        orders: readable when the process gets a call, and when it must end.
    """

    def __init__(self, initialize: Callable[[], object], orders: Connection) -> None:
        self._orders = orders
        self._pipe, self._theirs = CONTEXT.Pipe()
        _limit_stalls(self._pipe)
        self._process = CONTEXT.Process(target=serve, args=(self._theirs, initialize), name=NAME)

    def start(self) -> None:
        """Start the process. The kernel kills it if the thread that calls this ends first.

        The process's signals are blocked until it ignores them. multiprocessing also starts a tracker process, which
        ignores SIGTERM and SIGINT, and SIGHUP stays blocked there. Starting that tracker unblocks the other two signals
        here.
        """
        with stop_signals.blocked():
            resource_tracker.ensure_running()
        with self._theirs, stop_signals.blocked(), standard_streams.without_full():
            self._process.start()

    def wait_until_ready(self) -> None:
        """Wait until the process takes calls.

        Raises:
            ChildDied: why it does not.
        """
        try:
            if not self._wait(START_S):
                raise ChildDied(f"the handler's process did not start within {START_S:.0f} s")
            problem = self._pipe.recv()
        except (EOFError, OSError) as error:
            code = self._exit_code()
            raise ChildDied(f"the handler's process could not start: it died with exit code {code}", code) from error
        if problem is not None:
            raise ChildDied(f"the handler's process could not start:\n{problem}")

    def wait_for_order(self) -> bytes:
        """Wait for the next order, while the process is idle, and return it.

        Raises:
            ChildGone: the process has ended.
        """
        ready = wait([self._orders, self._pipe, self._process.sentinel])
        if self._pipe in ready or self._process.sentinel in ready:
            raise ChildGone(DIED_UNOBSERVED)
        return self._orders.recv_bytes()

    def answer(self, contents: bytes, limit_s: float | None) -> ChildAnswer:
        """Send a call to the process and return its answer.

        Args:
            contents: the call, pickled.
            limit_s: how long it may take once the process has started it.

        Raises:
            TimeoutError: it takes longer.
            ChildDied: the process has ended, or must end.
        """
        has_started = False
        try:
            self._pipe.send_bytes(contents)
            # A thread that a handler left behind may hold the interpreter.
            if not self._wait(TAKE_S):
                raise ChildDied(NOT_TAKEN)
            has_started = self._pipe.recv()
            if self._wait(limit_s):
                answer: ChildAnswer = self._pipe.recv()
                return answer
        except (EOFError, OSError) as error:
            raise self._death(has_started) from error
        raise TimeoutError(f"the handler took longer than {limit_s} s")

    def _wait(self, timeout_s: float | None) -> bool:
        """Wait for data from the process; return False if the time is over first.

        Raises:
            EOFError: it has ended.
            ChildDied: the process must end.
        """
        once_s = None if timeout_s is None else min(timeout_s, MAX_WAIT_S)
        ready = wait([self._pipe, self._process.sentinel, self._orders], once_s)
        if self._orders in ready:
            raise ChildDied(STOPPED)
        if ready and self._pipe not in ready:
            raise EOFError
        if not ready and timeout_s is not None and timeout_s > MAX_WAIT_S:
            return self._wait(timeout_s - MAX_WAIT_S)
        return bool(ready)

    def _death(self, has_started: bool) -> ChildDied:
        if not has_started:
            return ChildDied(DIED_UNOBSERVED)
        if (code := self._exit_code()) is None:
            return ChildDied(BROKEN_OFF)
        return ChildDied(f"the handler's process died with exit code {code}", code)

    def _exit_code(self) -> int | None:
        """Wait for the exit code; return None if the process does not end.

        A process that a handler left behind may hold the sentinel, which then tells nothing.
        """
        until = time.monotonic() + TERMINATE_S
        while (code := self._process.exitcode) is None and time.monotonic() < until:
            time.sleep(POLL_S)
        return code

    def kill(self) -> None:
        """End the process at once. Thread-safe."""
        with suppress(ValueError):  # it has ended
            if self._process.pid is not None:
                self._process.kill()

    def end(self) -> None:
        """End the process, kill it if it does not end, and close the pipe."""
        if (pid := self._process.pid) is not None:
            if self._process.exitcode is None:
                with suppress(ProcessLookupError):
                    os.kill(pid, END)
            self._exit_code()
            self._process.kill()
            self._process.join()
            # Another thread that starts a process may be reading the exit code of this one now; then this process seems
            # to run.
            with suppress(ValueError):
                self._process.close()
        self._pipe.close()


def _limit_stalls(pipe: Connection) -> None:
    """Limit each read or write of a large message to TAKE_S, in case the process is stopped."""
    with socket.socket(fileno=os.dup(pipe.fileno())) as same:
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            same.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", int(TAKE_S), int(TAKE_S % 1 * 1e6)))
