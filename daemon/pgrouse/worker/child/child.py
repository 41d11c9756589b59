"""One child process, and the thread that starts it, passes it one call after the other, and ends it.

The thread lives as long as the process: the kernel kills a process whose parent thread has ended (PR_SET_PDEATHSIG). It
waits at the same time for an answer, for the end of the process, and for an order to end it. So each call ends, and the
thread knows whether the process had started it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from threading import Lock, Thread
from typing import Any

from pgrouse.worker.child.child_link import NAME, STOPPED, ChildGone, ChildLink
from pgrouse.worker.child.child_server import ChildAnswer

CALL, STOP = b"call", b"stop"


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


class Child:
    """A process that makes one call at a time.

    Args:
        initialize: called there first; can be imported there.
        inherited: descriptors that the process gets too.

    Attributes:
        calls: how many calls it was given.
        ended_by: why it takes no more calls; None = it takes calls.
    """

    def __init__(self, initialize: Callable[[], object], inherited: tuple[int, ...] = ()) -> None:
        self.calls = 0
        self.ended_by: Exception | None = None
        self._given: ChildCall | None = None
        self._lock = Lock()
        self._orders, self._order = Pipe(duplex=False)
        self._link = ChildLink(initialize, self._orders, inherited)
        self._thread = Thread(target=self._run, name=NAME, daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], limit_s: float | None) -> Future[Any]:
        """Give the process a call, once the previous one has ended; return a future for its result.

        The future raises:
            TimeoutError: the call took longer than limit_s; the process has been killed.
            ChildDied: the process ended; ChildGone if that was before the call was sent.
            RuntimeError: the call raised an exception, or its result cannot be pickled.

        Raises:
            Exception: the reason why the process has ended already.
        """
        given = ChildCall(function, args, limit_s)
        with self._lock:
            if self.ended_by is not None:
                raise self.ended_by
            self.calls += 1
            self._given = given
            self._order.send_bytes(CALL)
        return given.result

    def stop(self) -> None:
        """Let the thread end the process, whatever it does."""
        with self._lock:
            if self.ended_by is None:
                self.ended_by = ChildGone(STOPPED)
                # An order, and not the closing of the pipe: a copy of the daemon that a handler forked would hold the
                # pipe open.
                self._order.send_bytes(STOP)

    def join(self, timeout_s: float) -> None:
        """Wait until the process has ended; kill it after that time."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._link.kill()

    @property
    def is_over(self) -> bool:
        """Whether the process has ended."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        error: Exception = ChildGone(STOPPED)
        try:
            self._link.start()
            self._make_calls()
        except Exception as raised:  # noqa: BLE001 - also a machine without memory, or a call that cannot be pickled
            error = raised.with_traceback(None)  # the traceback holds this frame, and so the call
        try:
            self._link.end()
        finally:
            self._end(error)

    def _make_calls(self) -> None:
        """Make calls until the process ends or is asked to end.

        Raises:
            ChildDied, TimeoutError: as the result of a call does.
        """
        # The first call starts the process, which is not ready yet.
        order = self._orders.recv_bytes()
        self._link.wait_until_ready()
        while order == CALL and (call := self._given) and call.result.set_running_or_notify_cancel():
            answer = self._link.answer(pickle.dumps((call.function, call.args)), call.limit_s)
            # The caller may send another call as soon as it has the result.
            self._given = None
            _resolve(call.result, answer)
            order = self._link.wait_for_order()

    def _end(self, error: Exception) -> None:
        with self._lock:
            self.ended_by = error
            self._order.close()
            self._orders.close()
        if self._given is not None:
            with suppress(InvalidStateError):  # its caller has stopped waiting
                self._given.result.set_exception(error)


def _resolve(result: Future[Any], answer: ChildAnswer) -> None:
    if answer.error is None:
        result.set_result(answer.value)
    else:
        result.set_exception(RuntimeError(answer.error))
