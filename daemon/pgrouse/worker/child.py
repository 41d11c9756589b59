"""One child process, and the thread that starts it, passes it one call after the other, and waits for its end.

The thread lives as long as the process: the kernel kills a process whose parent thread has ended (PR_SET_PDEATHSIG). It waits at the same time for
an answer, for the end of the process, and for an order to end it: each call ends, and it is known whether the process had started it.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from threading import Lock, Thread
from typing import Any, NamedTuple

from pgrouse.handlers.outcome import describe

NAME = "pgrouse-child"
CONTEXT = multiprocessing.get_context("spawn")
# A process that does not end when it is asked to is killed after this.
TERMINATE_S = 3.0
POLL_S = 0.02
# How long a process may take to start a call, when it does nothing else.
TAKE_S = 60.0
STOPPED = "the handler's process was stopped"
NOT_TAKEN = "the handler's process did not start the handler, although nothing else ran there"
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


@dataclass(frozen=True)
class ChildCall:
    """A call for a process.

    Attributes:
        function: can be imported there.
        limit_s: how long it may take once the process has started it; None = without a limit.
        result: what it returns or raises.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    limit_s: float | None
    result: Future[Any] = field(default_factory=Future)


class ChildAnswer(NamedTuple):
    """What a process answers to a call: what the function returned, or the error because of which there is nothing."""

    value: Any = None
    error: str | None = None


class Child:
    """A process that makes one call at a time.

    Args:
        initialize: called there first; can be imported there.

    Attributes:
        calls: how many it was given.
        is_over: whether it makes none any more.
    """

    def __init__(self, initialize: Callable[[], object]) -> None:
        self.calls = 0
        self.is_over = False
        self._given: ChildCall | None = None
        self._lock = Lock()
        # It is readable when there is a call to make; it is at its end when the process is to end.
        self._orders, self._give = CONTEXT.Pipe(duplex=False)
        self._ours, theirs = CONTEXT.Pipe()
        self._process = CONTEXT.Process(target=serve, args=(theirs, initialize), name=NAME)
        self._thread = Thread(target=self._run, args=[theirs], name=NAME, daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], limit_s: float | None) -> Future[Any]:
        """Give the process a call, when the one before has ended; return its result to come.

        It raises:
            TimeoutError: the call took longer than limit_s; the process has been killed.
            ChildDied: the process ended.

        Raises:
            ChildDied: the process had ended before.
        """
        given = ChildCall(function, args, limit_s)
        with self._lock:
            if self.is_over or self._give.closed:
                raise ChildDied(STOPPED)
            self.calls += 1
            self._given = given
            self._give.send_bytes(b"call")
        return given.result

    def stop(self) -> None:
        """Let the thread end the process, whatever it does."""
        with self._lock:
            self._give.close()

    def join(self, timeout_s: float) -> None:
        """Wait until the process has ended; kill it after that time."""
        self._thread.join(timeout_s)
        if self._thread.is_alive() and self._process.pid is not None:
            self._process.kill()

    def _run(self, theirs: Connection) -> None:
        error: Exception = ChildDied(STOPPED)
        try:
            with theirs:
                self._process.start()
            self._make_calls()
        except Exception as raised:  # noqa: BLE001 - also a machine without memory, or a result that cannot be read
            error = raised
        self._end_process()
        self._end(error)

    def _make_calls(self) -> None:
        """Make calls until the process ends or is to end.

        Raises:
            ChildDied, TimeoutError: as the result of a call does.
        """
        # The first call comes with the process.
        if not self._is_next():
            return
        self._wait_until_ready()
        while (call := self._given) and call.result.set_running_or_notify_cancel():
            answer = self._answer(call)
            # As soon as its caller has the result there may be another one.
            self._given = None
            _resolve(call.result, answer)
            if not self._is_next():
                return

    def _is_next(self) -> bool:
        """Wait for the next call; return False if the process is to end."""
        if self._orders not in wait([self._orders, self._process.sentinel]):
            raise ChildDied(DIED_UNOBSERVED)
        with suppress(EOFError):
            return bool(self._orders.recv_bytes())
        return False

    def _wait_until_ready(self) -> None:
        try:
            self._wait()
            problem = self._ours.recv()
        except (EOFError, OSError) as error:
            raise ChildDied(DIED_UNOBSERVED) from error
        if problem is not None:
            raise ChildDied(f"the handler's process could not start:\n{problem}")

    def _answer(self, call: ChildCall) -> ChildAnswer:
        contents = pickle.dumps((call.function, call.args))
        has_started = False
        try:
            self._ours.send_bytes(contents)
            # A thread that a handler left behind may hold the interpreter.
            if not self._wait(TAKE_S):
                raise ChildDied(NOT_TAKEN)
            has_started = self._ours.recv()
            if self._wait(call.limit_s):
                answer: ChildAnswer = self._ours.recv()
                return answer
        except (EOFError, OSError) as error:
            raise self._death(has_started) from error
        raise TimeoutError(f"the handler took longer than {call.limit_s} s")

    def _wait(self, timeout_s: float | None = None) -> bool:
        """Wait for what the process sends; return False if the time is over before.

        Raises:
            EOFError: it has ended.
            ChildDied: it is to end.
        """
        ready = wait([self._ours, self._process.sentinel, self._orders], timeout_s)
        if self._orders in ready:
            raise ChildDied(STOPPED)
        if ready and self._ours not in ready:
            raise EOFError
        return bool(ready)

    def _death(self, has_started: bool) -> ChildDied:
        if not has_started:
            return ChildDied(DIED_UNOBSERVED)
        code = self._exit_code()
        return ChildDied(f"the handler's process died with exit code {code}", code)

    def _exit_code(self) -> int | None:
        """Wait for the exit code. The sentinel does not tell of it if a copy that a handler forked holds that, too."""
        until = time.monotonic() + TERMINATE_S
        while (code := self._process.exitcode) is None and time.monotonic() < until:
            time.sleep(POLL_S)
        return code

    def _end_process(self) -> None:
        if self._process.pid is None:
            return
        self._process.terminate()
        self._process.join(TERMINATE_S)
        self._process.kill()
        self._process.join()

    def _end(self, error: Exception) -> None:
        with self._lock:
            self.is_over = True
            for each in (self._give, self._orders, self._ours):
                each.close()
        if self._given is not None:
            with suppress(InvalidStateError):  # its caller has stopped waiting
                self._given.result.set_exception(error)


def _resolve(result: Future[Any], answer: ChildAnswer) -> None:
    if answer.error is None:
        result.set_result(answer.value)
    else:
        result.set_exception(RuntimeError(answer.error))


def serve(parent: Connection, initialize: Callable[[], object]) -> None:
    """What the process does: answer one call after the other."""
    # A copy that a handler forks must not answer, nor hide the end of this process.
    os.register_at_fork(after_in_child=parent.close)
    try:
        initialize()
    except BaseException as error:  # noqa: BLE001 - sys.exit while a handler's module is imported
        parent.send(describe(error))
        return
    parent.send(None)
    with suppress(EOFError):
        while True:
            _serve_next(parent)


def _serve_next(parent: Connection) -> None:
    contents = parent.recv_bytes()
    parent.send(True)
    try:
        function, args = pickle.loads(contents)  # noqa: S301 - of the daemon
        answer = pickle.dumps(ChildAnswer(function(*args)))
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer
        answer = pickle.dumps(ChildAnswer(error=describe(error)))
    parent.send_bytes(answer)
