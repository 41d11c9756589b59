"""The main loop of a child process: it answers the calls of the daemon, one after the other."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from pgrouse.handlers.outcome import describe
from pgrouse.process import stop_signals

# The daemon ends a child with this signal, which the child's lifespan may handle. The signals that stop a daemon may
# reach the whole process group, and the daemon decides what they mean: a child's handler has `worker.shutdown_timeout`
# to end.
END = signal.SIGUSR2


class ChildAnswer(NamedTuple):
    """The answer to a call: what the function returned, or the error because of which there is no result."""

    value: Any = None
    error: str | None = None


def serve(daemon: Connection, initialize: Callable[[], object]) -> None:
    """Send None when the child takes calls, or the reason why it cannot.

    Then, for each call, send True when it starts, and its ChildAnswer.

    Args:
        daemon: the pipe to the daemon.
        initialize: called first; may return a function to call at the end.
    """
    stop_signals.ignore()
    _keep_to_itself(daemon)
    try:
        end = initialize()
    except BaseException as error:  # noqa: BLE001 - sys.exit while a handler's module is imported
        daemon.send(describe(error))
        return
    daemon.send(None)
    with suppress(EOFError):
        while True:
            _serve_next(daemon)
    if callable(end):
        end()


def _keep_to_itself(daemon: Connection) -> None:
    """Keep the pipe to this process alone.

    A process that a handler starts or forks must not answer, nor hide the end of this process.
    """
    os.set_inheritable(daemon.fileno(), False)
    os.register_at_fork(after_in_child=daemon.close)


def _serve_next(daemon: Connection) -> None:
    contents = daemon.recv_bytes()
    daemon.send(True)
    try:
        function, args = pickle.loads(contents)  # noqa: S301 - of the daemon
        answer = pickle.dumps(ChildAnswer(function(*args)))
    except BaseException as error:  # noqa: BLE001 - any exception is the answer
        answer = pickle.dumps(ChildAnswer(error=describe(error)))
    daemon.send_bytes(answer)
