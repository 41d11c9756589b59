"""Runs each blocking call in a new thread: handlers may hold all threads of the event loop's executor without end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def call_in_new_thread(function: Callable[[], T]) -> T:
    """Call a function in a new thread and return its result.

    The interpreter does not wait for the thread at its end.
    """
    done: Future[T] = Future()
    threading.Thread(target=_call, args=[function, done], name="call", daemon=True).start()
    try:
        return await asyncio.wrap_future(done)
    finally:
        del done  # its exception has this frame in its traceback


def _call(function: Callable[[], T], done: Future[T]) -> None:
    with suppress(InvalidStateError):  # its result is no longer wanted
        try:
            done.set_result(function())
        except InvalidStateError:
            raise
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
            done.set_exception(error)
        finally:
            del done  # its exception has this frame in its traceback
