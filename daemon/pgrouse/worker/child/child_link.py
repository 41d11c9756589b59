"""The process of a child and the pipe to it, as its thread in the daemon uses them.

Each wait ends when the process ends or is asked to end.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import Pipe, spawn
from multiprocessing.connection import Connection, wait
from pathlib import Path

from pgrouse.process import stop_signals
from pgrouse.worker.child.child_server import END, ChildAnswer, serve

NAME = "pgrouse-child"
# What a new interpreter runs: it gets the import path and the arguments of the daemon, and then what it has to do.
# multiprocessing would also run the program again that contains the worker.
START = (
    "import sys; from multiprocessing.connection import Connection; daemon = Connection(int(sys.argv[1])); "
    "sys.path[:], sys.argv[:] = daemon.recv(); daemon.recv()(daemon)"
)
# A process that does not end within this time after it is asked to is killed.
TERMINATE_S = 3.0
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
        inherited: descriptors that the process gets too, under the same numbers.
    """

    def __init__(self, initialize: Callable[[], object], orders: Connection, inherited: tuple[int, ...] = ()) -> None:
        self._orders, self._inherited = orders, inherited
        self._initialize = initialize
        self._pipe, self._theirs = Pipe()
        _limit_stalls(self._pipe)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process. The kernel kills it if the thread that calls this ends first.

        The process's signals are blocked until it ignores them. It is a new interpreter, with the flags of this one.
        """
        # As multiprocessing does.
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001
        theirs = self._theirs.fileno()
        # -P: what is in the folder in which the daemon runs is not to be imported.
        command = [spawn.get_executable(), *flags, "-P", "-c", START, str(theirs)]
        with self._theirs, stop_signals.blocked():
            self._process = subprocess.Popen(  # noqa: S603 - of the same environment
                command, stdin=subprocess.DEVNULL, pass_fds=(theirs, *self._inherited), restore_signals=False
            )

    def wait_until_ready(self) -> None:
        """Wait until the process takes calls.

        Raises:
            ChildDied: why it does not.
        """
        try:
            self._pipe.send(([str(Path(each)) for each in sys.path], sys.argv))
            self._pipe.send(partial(serve, initialize=self._initialize))
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
        if self._pipe in wait([self._orders, self._pipe]):
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

        At its end, the process closes the pipe: then there is data too, and reading it raises an EOFError.

        Raises:
            ChildDied: the process must end.
        """
        once_s = None if timeout_s is None else min(timeout_s, MAX_WAIT_S)
        ready = wait([self._pipe, self._orders], once_s)
        if self._orders in ready:
            raise ChildDied(STOPPED)
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
        """Wait for the exit code; return None if the process does not end."""
        if self._process is None:
            return None
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(TERMINATE_S)
        return None

    def kill(self) -> None:
        """End the process at once. Thread-safe."""
        if self._process is not None:
            self._process.kill()

    def end(self) -> None:
        """End the process, kill it if it does not end, and close the pipe."""
        if self._process is not None:
            self._process.send_signal(END)
            self._exit_code()
            self._process.kill()
            self._process.wait()
        self._pipe.close()


def _limit_stalls(pipe: Connection) -> None:
    """Limit each read or write of a large message to TAKE_S, in case the process is stopped."""
    with socket.socket(fileno=os.dup(pipe.fileno())) as same:
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            same.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", int(TAKE_S), int(TAKE_S % 1 * 1e6)))
