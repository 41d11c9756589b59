"""Handlers in child processes (`isolation = "process"`): they may crash, leak memory, block or hang without affecting anything else.

A child is spawned, not forked: it inherits only one socket from the daemon. It ends when the daemon ends. It has no connection to the
database: its context offers no transaction, and the daemon settles for it. A child whose call times out, or whose message is lost, is killed.
What its handler reports while it runs (progress, lock extensions) is sent to the daemon through the socket, as datagrams: children share it
without a lock, and a child that is killed while sending leaves nothing inconsistent.
"""

from __future__ import annotations

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
from pgrouse.handlers import handler
from pgrouse.handlers.ack_rules import AckPolicy
from pgrouse.handlers.batch import Batch
from pgrouse.handlers.context import Context
from pgrouse.handlers.event_loop import DONE
from pgrouse.handlers.publish_tracker import check_awaited, tracker_of
from pgrouse.publishing import trace_context
from pgrouse.worker.child_pool import ChildPool
from pgrouse.worker.django_connections import clean_up_after_coroutine, fresh_connections

PR_SET_PDEATHSIG = 1
MAX_TASKS = 1000  # then the child is replaced, which bounds what a handler can leak

# How long a child waits for a daemon that does not read its reports.
SEND_S = 0.2
MAX_REPORTS = 100
DATAGRAM = 65_536

_handler: handler.Handler | None = None
_to_daemon: socket.socket | None = None


# The processes died while the pool believed them idle: the last call may have started, and may have killed them.
DIED_UNOBSERVED = "the handler's process died before it could report whether the handler had started"


class ChildRuntime:
    """The runtime of a handler in a child process. It cannot know what happens to its message meanwhile."""

    stopping = False

    def holds(self, message: Message) -> bool:
        """Assume so: a child whose message is lost is killed."""
        return True

    def cancelled(self, message: Message) -> bool:
        """Assume not, for the same reason."""
        return False

    def note_progress(self, message: Message, text: str) -> None:
        """Report the progress to the daemon."""
        _report(message, progress=text)

    def extend(self, message: Message, lock_duration: timedelta) -> Awaitable[None]:
        """Ask the daemon to extend the lock."""
        _report(message, extend_s=lock_duration.total_seconds())
        return DONE

    def steps(self, message: Message) -> NoReturn:
        """Steps are not available here."""
        raise RuntimeError(
            'ctx.step() is not there with isolation = "process", which has no connection to keep a result: '
            "run the handler in a thread, or publish the steps as messages that come after each other"
        )

    @property
    def pool(self) -> Any:
        """Connections are not available here."""
        raise RuntimeError(
            'ctx.transaction() is not there with isolation = "process", nor is ctx.publish(): '
            "open a connection of your own, and give it to pgrouse.publish"
        )

    blocking_pool = pool


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

    async def run(self, message: Message) -> Settlement:
        """Run the handler for one message in a child; its timeout starts when a child starts it."""
        trace = trace_context.current()
        settlement: Settlement = await self._pool.call(run_handler, message, trace, limit_s=message.timeout_s)
        return settlement

    async def run_batch(self, messages: list[Message], limit_s: float | None) -> list[Settlement]:
        """Run a batch handler for these messages in a child, with this timeout."""
        settlements: list[Settlement] = await self._pool.call(
            run_batch_handler, messages, trace_context.current(), limit_s=limit_s
        )
        return settlements

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


def run_handler(message: Message, trace: dict[str, str]) -> Settlement:
    """Run the handler for one message, in the child and within this trace; return its settlement."""
    with trace_context.use_context(trace):
        return _run_handler(message)


def _run_handler(message: Message) -> Settlement:
    assert _handler is not None  # noqa: S101 - set by the pool's initializer
    began = monotonic()
    context = Context(message, ChildRuntime(), completed=_handler.rules.policy is AckPolicy.ACK_FIRST)  # type: ignore[arg-type]
    returned: object
    try:
        with fresh_connections():
            returned = _handler.call(message, context)
            if hasattr(returned, "__await__"):
                returned = _run_coroutine(returned)
    except BaseException as error:  # noqa: BLE001 - sys.exit in a handler fails the message, not the child
        returned = error
    settlement = _handler.rules.to_settlement(message, check_awaited(tracker_of(context), returned), context.action)
    settlement.ran_s = monotonic() - began
    return settlement


def run_batch_handler(messages: list[Message], trace: dict[str, str]) -> list[Settlement]:
    """Run a batch handler for these messages, in the child and within this trace; return their settlements."""
    with trace_context.use_context(trace):
        return _run_batch_handler(messages)


def _run_batch_handler(messages: list[Message]) -> list[Settlement]:
    assert _handler is not None  # noqa: S101 - set by the pool's initializer
    batch = Batch(_handler, messages, ChildRuntime())  # type: ignore[arg-type]
    began = monotonic()
    returned: object
    try:
        with fresh_connections():
            returned = batch.call()
            if hasattr(returned, "__await__"):
                returned = _run_coroutine(returned)
    except BaseException as error:  # noqa: BLE001 - sys.exit in a handler fails its messages, not the child
        returned = error
    ran_s = monotonic() - began
    settlements = batch.to_settlements(returned)
    for each in settlements:
        each.ran_s = ran_s
    return settlements


def _run_coroutine(coroutine: Any) -> object:
    import asyncio  # noqa: PLC0415 - most children need none

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
        from pgrouse.telemetry import providers  # noqa: PLC0415

        providers.set_providers(otel, f"{topic}:{os.getpid()}")
    _handler = handler.find_handler(topic, chosen, rules)
