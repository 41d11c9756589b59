"""Handlers in child processes (`isolation = "process"`): they may crash, leak, block or hang without harm to anyone else.

A child is started anew (spawn), so that it inherits no socket, lock or descriptor of the daemon but one; it ends when the daemon ends. It
has no connection to the database: its context offers no transaction, and the daemon settles for it. A child that overruns its time, or whose
message is lost, is killed. What its handler says while it runs (progress, a longer lock) it sends to the daemon through the one socket:
datagrams, so that children share it without a lock, and one that is killed in the middle leaves nothing broken.
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

from pgrouse.config import config

from pgrouse.handlers import handler

from pgrouse.publishing import trace_context
from pgrouse.handlers.ack_rules import AckPolicy
from pgrouse.handlers.batch import Batch
from pgrouse.worker.child_pool import ChildPool
from pgrouse.handlers.context import NOTHING, Context
from pgrouse.worker.django_connections import after_a_coroutine, as_in_a_request
from pgrouse.client.message import Message
from pgrouse.handlers.outcome import Ended
from pgrouse.handlers.publish_tracker import checked, promised_by

PR_SET_PDEATHSIG = 1
MAX_TASKS = 1000  # what a handler leaks is bounded: then its child is replaced

# How long a child waits for a daemon that does not read what it says.
SEND_S = 0.2
HEARD_AT_ONCE = 100
DATAGRAM = 65_536

_handler: handler.Handler | None = None
_to_daemon: socket.socket | None = None


# Its processes died while the pool knew of none that it was at work: what it was asked last may have begun, and may have ended them.
DIED_UNSEEN = "the handler's process died before it could say whether the handler had begun"


class Apart:
    """The surroundings of a handler in a child: it cannot know what happens to its message meanwhile."""

    stopping = False

    def holds(self, message: Message) -> bool:
        """Assume so: a child whose message is lost is killed."""
        return True

    def cancelled(self, message: Message) -> bool:
        """Assume not, for the same reason."""
        return False

    def note_progress(self, message: Message, text: str) -> None:
        """Let the daemon note it."""
        _say(message, progress=text)

    def extend(self, message: Message, lock_for: timedelta) -> Awaitable[None]:
        """Let the daemon extend the lock."""
        _say(message, extend_s=lock_for.total_seconds())
        return NOTHING

    def steps(self, message: Message) -> NoReturn:
        """There are none."""
        raise RuntimeError(
            'ctx.step() is not there with isolation = "process", which has no connection to keep a result: '
            "run the handler in a thread, or publish the steps as messages that come after each other"
        )

    @property
    def pool(self) -> Any:
        """There is none."""
        raise RuntimeError(
            'ctx.transaction() is not there with isolation = "process", nor is ctx.publish(): '
            "open a connection of your own, and give it to pgrouse.publish"
        )

    blocking_pool = pool


class Children:
    """The children of one topic; they start with its first message and live for many.

    Args:
        size: how many.
        otel: the section `[otel]`: whether handlers' own spans are exported from there.
        without: environment variables that handlers shall not find there.
    """

    def __init__(
        self,
        topic: str,
        chosen: config.Topic,
        rules: config.Handlers,
        size: int,
        otel: config.Otel | None = None,
        without: tuple[str, ...] = (),
    ) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ours.setblocking(False)
        make = partial(
            ProcessPool,
            max_workers=size,
            max_tasks=MAX_TASKS,
            initializer=_begin,
            initargs=(topic, chosen, rules, [str(Path(p)) for p in sys.path], theirs, otel, without),
            context=multiprocessing.get_context("spawn"),
        )
        self._pool = ChildPool(make)

    async def run(self, message: Message) -> Ended:
        """Run the handler for one message in a child; its time begins when a child takes it up."""
        trace = trace_context.current()
        ended: Ended = await self._pool.call(work, message, trace, limit_s=message.run_timeout_s)
        return ended

    async def run_batch(self, messages: list[Message], limit_s: float | None) -> list[Ended]:
        """Run a batch handler for these messages in a child, at most so long."""
        ended: list[Ended] = await self._pool.call(work_batch, messages, trace_context.current(), limit_s=limit_s)
        return ended

    def close(self) -> None:
        """Kill them all."""
        self._pool.close()

    def fileno(self) -> int:
        """Return the descriptor that is readable when a child has said something."""
        return self._ours.fileno()

    def hear(self) -> list[dict[str, Any]]:
        """Return what the children have said: each a message's id and claim_id, and a progress or a time."""
        return list(islice(self._said(), HEARD_AT_ONCE))

    def _said(self) -> Iterator[dict[str, Any]]:
        with suppress(BlockingIOError):
            while True:
                yield json.loads(self._ours.recv(DATAGRAM))


def _say(message: Message, **what: Any) -> None:
    """Tell the daemon; what cannot be told in a moment is not told."""
    assert _to_daemon is not None  # noqa: S101 - set by the pool's initializer
    with suppress(OSError):
        _to_daemon.send(json.dumps({"id": message.id, "claim_id": message.claim_id, **what}).encode())


def work(message: Message, trace: dict[str, str]) -> Ended:
    """Run the handler for one message, in the child and within this trace; return how the attempt ended."""
    with trace_context.within(trace):
        return _work(message)


def _work(message: Message) -> Ended:
    assert _handler is not None  # noqa: S101 - set by the pool's initializer
    began = monotonic()
    context = Context(message, Apart(), completed=_handler.rules.policy is AckPolicy.ACK_FIRST)  # type: ignore[arg-type]
    said: object
    try:
        with as_in_a_request():
            said = _handler.call(message, context)
            if hasattr(said, "__await__"):
                said = _run(said)
    except BaseException as error:  # noqa: BLE001 - sys.exit in a handler fails the message, not the child
        said = error
    ended = _handler.rules.ended(message, checked(promised_by(context), said), context.action)
    ended.ran_s = monotonic() - began
    return ended


def work_batch(messages: list[Message], trace: dict[str, str]) -> list[Ended]:
    """Run a batch handler for these messages, in the child and within this trace; return how the attempt of each ended."""
    with trace_context.within(trace):
        return _work_batch(messages)


def _work_batch(messages: list[Message]) -> list[Ended]:
    assert _handler is not None  # noqa: S101 - set by the pool's initializer
    batch = Batch(_handler, messages, Apart())  # type: ignore[arg-type]
    began = monotonic()
    said: object
    try:
        with as_in_a_request():
            said = batch.call()
            if hasattr(said, "__await__"):
                said = _run(said)
    except BaseException as error:  # noqa: BLE001 - sys.exit in a handler fails its messages, not the child
        said = error
    ran_s = monotonic() - began
    ended = batch.conclude(said)
    for each in ended:
        each.ran_s = ran_s
    return ended


def _run(coroutine: Any) -> object:
    import asyncio  # noqa: PLC0415 - most children need none

    try:
        return asyncio.run(coroutine)
    finally:
        after_a_coroutine()


def _exit(leave: Callable[[int], NoReturn], code: int) -> NoReturn:
    leave(code or 1)


def _begin(
    topic: str,
    chosen: config.Topic,
    rules: config.Handlers,
    path: list[str],
    to_daemon: socket.socket,
    otel: config.Otel | None,
    without: tuple[str, ...],
) -> None:
    global _handler, _to_daemon  # noqa: PLW0603 - one handler is all that a child is for
    to_daemon.settimeout(SEND_S)
    _to_daemon = to_daemon
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The daemon may have gone before that: the kernel tells nobody.
    daemon = multiprocessing.parent_process()
    if daemon is not None and os.getppid() != daemon.pid:
        os._exit(1)
    # A child that ends with 0 counts as one that has done its share: its message would wait for a result for ever.
    # What a handler forks ends as it says.
    real = os._exit
    os._exit = partial(_exit, real)
    os.register_at_fork(after_in_child=partial(setattr, os, "_exit", real))
    sys.path[:] = path
    for variable in without:
        os.environ.pop(variable, None)
    if otel is not None and otel.enabled:
        from pgrouse.telemetry import providers as export  # noqa: PLC0415

        export.begin(otel, f"{topic}:{os.getpid()}")
    _handler = handler.find(topic, chosen, rules)
