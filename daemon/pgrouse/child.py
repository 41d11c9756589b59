"""Handlers in child processes (`isolation = "process"`): they may crash, leak, block or hang without harm to anyone else.

A child is started anew (spawn), so that it inherits no socket, lock or descriptor of the daemon; it ends when the daemon ends. It has no
connection to the database: its context offers no transaction, and the daemon settles for it. A child that overruns its time is killed.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn

from pebble import ProcessPool

from pgrouse import config, handler
from pgrouse.context import Context
from pgrouse.message import Message
from pgrouse.outcome import Ended, ended

PR_SET_PDEATHSIG = 1
MAX_TASKS = 1000  # what a handler leaks is bounded: then its child is replaced

_handler: handler.Handler | None = None


class Apart:
    """The surroundings of a handler in a child: it cannot know what happens to its message meanwhile."""

    stopping = False

    def holds(self, message: Message) -> bool:
        """Assume so: a child whose message is lost is killed."""
        return True

    @property
    def pool(self) -> Any:
        """There is none."""
        raise RuntimeError('ctx.transaction() is not there with isolation = "process": open a connection of your own')

    blocking_pool = pool


class Children:
    """The children of one topic; they start with its first message and live for many.

    Args:
        size: how many.
    """

    def __init__(self, topic: str, chosen: config.Topic, rules: config.Handlers, size: int) -> None:
        self._make = partial(
            ProcessPool,
            max_workers=size,
            max_tasks=MAX_TASKS,
            initializer=_begin,
            initargs=(topic, chosen, rules, [str(Path(p)) for p in sys.path]),
            context=multiprocessing.get_context("spawn"),
        )
        self._pool = self._make()

    def schedule(self, message: Message) -> Future[Ended]:
        """Run the handler for one message in a child; its time begins when a child takes it up."""
        if not self._pool.active:
            # A child that dies while it has nothing to do breaks the whole pool, and for good.
            broken, self._pool = self._pool, self._make()
            Thread(target=_close, args=[broken], daemon=True).start()
        return self._pool.schedule(work, args=[message], timeout=message.run_timeout_s)

    def close(self) -> None:
        """Kill them all."""
        _close(self._pool)


def _close(pool: ProcessPool) -> None:
    pool.stop()  # type: ignore[no-untyped-call]
    pool.join()


def work(message: Message) -> Ended:
    """Run the handler for one message, in the child; return how the attempt ended."""
    assert _handler is not None  # noqa: S101 - set by the pool's initializer
    said: object
    try:
        said = _handler.call(message, Context(message, Apart()))  # type: ignore[arg-type]
        if hasattr(said, "__await__"):
            said = _run(said)
    except BaseException as error:  # noqa: BLE001 - sys.exit in a handler fails the message, not the child
        said = error
    return ended(message, said)


def _run(coroutine: Any) -> object:
    import asyncio  # noqa: PLC0415 - most children need none

    return asyncio.run(coroutine)


def _exit(leave: Callable[[int], NoReturn], code: int) -> NoReturn:
    leave(code or 1)


def _begin(topic: str, chosen: config.Topic, rules: config.Handlers, path: list[str]) -> None:
    global _handler  # noqa: PLW0603 - one handler is all that a child is for
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # A child that ends with 0 counts as one that has done its share: its message would wait for a result for ever.
    os._exit = partial(_exit, os._exit)
    sys.path[:] = path
    _handler = handler.find(topic, chosen, rules)
