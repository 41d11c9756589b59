"""Handlers in child processes (`isolation = "process"`): they may crash, leak memory, block or hang without affecting anything else.

A child is spawned, not forked: it inherits only one socket from the daemon. It ends when the daemon ends. It has no connection to the
database: its context offers no transaction, and the daemon settles for it. A child whose call times out, or whose message is lost, is killed.
What its handler reports while it runs (progress, lock extensions) is sent to the daemon through the socket, as datagrams: children share it
without a lock, and a child that is killed while sending leaves nothing inconsistent.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

from pebble import ProcessPool

from pgrouse.client.message import Message
from pgrouse.client.settlement import Settlement
from pgrouse.config import config
from pgrouse.handlers import loader
from pgrouse.handlers.call import to_call
from pgrouse.handlers.encryption import NoEncryption
from pgrouse.handlers.event_loop import DONE
from pgrouse.handlers.handler import Handler
from pgrouse.handlers.runtime import AsyncPool, BlockingPool
from pgrouse.telemetry import trace_context
from pgrouse.worker.child_pool import ChildPool
from pgrouse.worker.django_connections import clean_up_after_coroutine, fresh_connections

PR_SET_PDEATHSIG = 1
MAX_TASKS = 1000  # then the child is replaced, which bounds what a handler can leak

# How long a child waits for a daemon that does not read its reports.
SEND_S = 0.2
MAX_REPORTS = 100
DATAGRAM = 65_536

NO_CONNECTION = (
    'ctx.transaction(), ctx.publish() and ctx.step() are not available with isolation = "process", which has no connection of the worker: '
    "run the handler in a thread, or open a connection of your own, and give it to pgrouse.publish"
)

_handler: Handler | None = None
_to_daemon: socket.socket | None = None


class ChildRuntime:
    """The runtime of a handler in a child process. It cannot know what happens to its message meanwhile, and needs no keys: messages are decrypted before."""

    stopping = False
    encryption = NoEncryption()

    @property
    def pool(self) -> AsyncPool:
        """Connections are not available here."""
        raise RuntimeError(NO_CONNECTION)

    @property
    def blocking_pool(self) -> BlockingPool:
        """Connections are not available here."""
        raise RuntimeError(NO_CONNECTION)

    def holds(self, message: Message) -> bool:
        """Assume so: a child whose message is lost is killed."""
        return True

    def cancelled(self, message: Message) -> bool:
        """Assume not, for the same reason."""
        return False

    def note_progress(self, message: Message, text: str) -> None:
        """Report the progress to the daemon."""
        _report(message, progress=text)

    def last_progress(self, message: Message) -> None:
        """Return None: only the daemon stores progress."""

    def extend(self, message: Message, lock_duration: timedelta) -> Awaitable[None]:
        """Ask the daemon to extend the lock."""
        _report(message, extend_s=lock_duration.total_seconds())
        return DONE

    def completed(self, *messages: Message) -> None:
        """Do nothing: there is no transaction here."""


class ChildProcesses:
    """The child processes of one topic; they start with its first message and work many.

    Args:
        size: how many.
        otel: the section `[otel]`: whether handlers' own spans are exported from there.
        without: environment variables that are removed there.
    """

    def __init__(
        self,
        topic: str,
        chosen: config.Topic,
        rules: config.HandlersSettings,
        size: int,
        otel: config.OtelSettings | None = None,
        without: tuple[str, ...] = (),
    ) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ours.setblocking(False)
        make = partial(
            ProcessPool,
            max_workers=size,
            max_tasks=MAX_TASKS,
            initializer=_initialize,
            initargs=(topic, chosen, rules, [str(Path(p)) for p in sys.path], theirs, otel, without),
            context=multiprocessing.get_context("spawn"),
        )
        self._pool = ChildPool(make)

    async def run(self, messages: list[Message], limit_s: float | None) -> tuple[list[Settlement], float | None]:
        """Run the handler for these messages in a child; its timeout starts when a child starts it.

        Returns:
            How the messages end, and how long the handler ran in seconds; None = it was not called.
        """
        ended: tuple[list[Settlement], float | None] = await self._pool.call(
            run_handler, messages, trace_context.current(), limit_s=limit_s
        )
        return ended

    def close(self) -> None:
        """Kill all child processes."""
        self._pool.close()

    def fileno(self) -> int:
        """Return the descriptor that is readable when a child has sent a report."""
        return self._ours.fileno()

    def receive(self) -> list[dict[str, Any]]:
        """Return the reports of the children: each has a message's id and claim_id, and a progress or a lock extension."""
        return list(islice(self._received(), MAX_REPORTS))

    def _received(self) -> Iterator[dict[str, Any]]:
        with suppress(BlockingIOError):
            while True:
                yield json.loads(self._ours.recv(DATAGRAM))


def _report(message: Message, **what: Any) -> None:
    """Send a report to the daemon; drop it if the daemon does not read for SEND_S."""
    assert _to_daemon is not None  # noqa: S101 - set by the pool's initializer
    with suppress(OSError):
        _to_daemon.send(json.dumps({"id": message.id, "claim_id": message.claim_id, **what}).encode())


def run_handler(messages: list[Message], trace: dict[str, str]) -> tuple[list[Settlement], float | None]:
    """Run the handler for these messages, in the child and within this trace; return what `ChildProcesses.run` does."""
    assert _handler is not None  # noqa: S101 - set by the pool's initializer
    call = to_call(_handler, messages, ChildRuntime())
    returned: object
    with trace_context.use_context(trace):
        began = monotonic()
        try:
            with fresh_connections():
                returned = call.call()
                if hasattr(returned, "__await__"):
                    returned = _run_coroutine(returned)
        except BaseException as error:  # noqa: BLE001 - sys.exit in a handler fails its messages, not the child
            returned = error
        ran_s = monotonic() - began if call.was_called else None
        return call.to_settlements(returned), ran_s


def _run_coroutine(coroutine: Any) -> object:
    try:
        return asyncio.run(coroutine)
    finally:
        clean_up_after_coroutine()


def _exit_nonzero(leave: Callable[[int], NoReturn], code: int) -> NoReturn:
    leave(code or 1)


def _initialize(
    topic: str,
    chosen: config.Topic,
    rules: config.HandlersSettings,
    path: list[str],
    to_daemon: socket.socket,
    otel: config.OtelSettings | None,
    without: tuple[str, ...],
) -> None:
    global _handler, _to_daemon  # noqa: PLW0603 - a child runs one handler
    to_daemon.settimeout(SEND_S)
    _to_daemon = to_daemon
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The daemon may have died before that; the kernel does not report it.
    daemon = multiprocessing.parent_process()
    if daemon is not None and os.getppid() != daemon.pid:
        os._exit(1)
    # The pool takes exit code 0 for a regular end, and the message would wait for its result forever.
    # Processes that a handler forks keep their exit code.
    real = os._exit
    os._exit = partial(_exit_nonzero, real)
    os.register_at_fork(after_in_child=partial(setattr, os, "_exit", real))
    sys.path[:] = path
    for variable in without:
        os.environ.pop(variable, None)
    if otel is not None and otel.enabled:
        from pgrouse.telemetry import providers  # noqa: PLC0415 - extra otel

        providers.set_providers(otel, f"{topic}:{os.getpid()}")
    _handler = loader.find_handler(topic, chosen, rules)
