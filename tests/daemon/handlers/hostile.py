"""Handlers that do everything a handler should not do."""

from __future__ import annotations

import asyncio
import ctypes
import math
import os
import sys
import time
from datetime import UTC, datetime, tzinfo

from pydantic import BaseModel, model_serializer
from work import is_open, until, until_in_thread, write

from pgrouse import Defer, Reject, Retry


class Unprintable(BaseModel):
    @model_serializer
    def tell(self):
        raise ZeroDivisionError


class NoZone(tzinfo):
    """A time zone with an invalid offset."""

    def __init__(self, error):
        self.error = error

    def utcoffset(self, moment):
        raise self.error


ENDINGS = {
    "sys.exit": lambda: sys.exit(3),
    "KeyboardInterrupt": lambda: _raise(KeyboardInterrupt()),
    "CancelledError": lambda: _raise(asyncio.CancelledError()),
    "GeneratorExit": lambda: _raise(GeneratorExit()),
    "StopIteration": lambda: _raise(StopIteration(1)),
    "RecursionError": lambda: _recurse(0),
    "MemoryError": lambda: _raise(MemoryError()),
    "ExceptionGroup": lambda: _raise(BaseExceptionGroup("several", [KeyboardInterrupt(), ValueError("one of them")])),
}
OUTPUTS = {
    "a set of objects": lambda: {object()},
    "NaN": lambda: {"rate": math.nan},
    "infinity": lambda: [math.inf],
    "NUL": lambda: "a\x00b",
    "a lone surrogate": lambda: "\ud800",
    "too large": lambda: "x" * 2_000_000,
    "nested too deeply": lambda: _nested(100_000),
    "a number too long to write": lambda: 10**5000,
    "an object without a text": Unprintable,
    "a dict with odd keys": lambda: {(1, 2): 3},
}
NONSENSE = {
    "a number": lambda: _bent(Retry(), 5),
    "a word": lambda: _bent(Defer(), "soon"),
    "a date": lambda: _bent(Retry(), datetime(2100, 1, 1, tzinfo=UTC)),
    "a huge number": lambda: _bent(Retry(), 10**5000),
    "no text": lambda: _bent(Retry(), "\ud800"),
    "no zone": lambda: Defer(until=datetime(2100, 1, 1, tzinfo=NoZone(RuntimeError("it is not known")))),
    "a lost zone": lambda: Defer(until=datetime(2100, 1, 1, tzinfo=NoZone(FileNotFoundError("it is not there")))),
}


def _bent(outcome, after):
    """Return an outcome with an invalid time, as a derived class may have one."""
    outcome.after = after
    return outcome


def _raise(error):
    raise error


def _recurse(depth):
    return _recurse(depth + 1)


def _nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def end_in_thread(payload, ctx):
    write("start", ctx)
    return ENDINGS[payload]()


async def end(payload, ctx):
    return end_in_thread(payload, ctx)


def give_in_thread(payload, ctx):
    write("start", ctx)
    return OUTPUTS[payload]()


async def give(payload, ctx):
    return give_in_thread(payload, ctx)


async def block(payload, ctx):
    """Blocks the event loop for the given number of seconds."""
    write("start", ctx)
    time.sleep(payload)  # noqa: ASYNC251 - that is the fault
    write("end", ctx)


async def block_until_gate(payload, ctx):
    """Blocks the event loop until the gate opens."""
    write("start", ctx)
    until_in_thread(lambda: is_open("gate"))
    write("end", ctx)


async def swallow(payload, ctx):
    """Ignores one cancellation, and ends when its gate opens."""
    write("start", ctx)
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        write("cancelled", ctx)
    await until(lambda: is_open("gate"))
    return "in spite of all"


async def use_task_group(payload, ctx):
    """Fails if an earlier cancellation has left a trace."""
    async with asyncio.timeout(10):
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0.01))
                group.create_task(_fail_soon())
        except ExceptionGroup:
            return "handled"


async def _fail_soon():
    raise KeyError


async def fail_when_cancelled(payload, ctx):
    write("start", ctx)
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        raise OSError("cannot tidy up") from None


def die(payload, ctx):
    """Kills its own process."""
    write("start", ctx)
    match payload:
        case "segfault":
            ctypes.string_at(0)
        case "os._exit(0)":
            os._exit(0)
        case "os._exit(7)":
            os._exit(7)
        case "kill -9":
            os.kill(os.getpid(), 9)
    return os.getpid()


def leak(payload, ctx):
    return os.getpid()


def hang(payload, ctx):
    write("start", ctx)
    while True:
        pass


async def answer_nonsense(payload, ctx):
    """Returns outcomes that the server refuses."""
    return NONSENSE[payload]()


MISTAKES = {
    "a class": lambda ctx: Reject,
    "a class of an exception": lambda ctx: ValueError,
    "a word as a time": lambda ctx: Retry(after="soon"),
    "not a number": lambda ctx: Defer(after=math.nan),
    "a time in the past": lambda ctx: Retry(after=-1),
    "a naive word": lambda ctx: Defer(until="tomorrow"),
    "an unawaited coroutine": lambda ctx: asyncio.sleep(0),
    "an unused generator": lambda ctx: (each for each in [1]),
}


def err_in_thread(payload, ctx):
    return MISTAKES[payload](ctx)


async def err(payload, ctx):
    return MISTAKES[payload](ctx)


err_in_a_child = err_in_thread


def err_acknowledged(payload, ctx):
    ctx.ack("done")
    return MISTAKES[payload](ctx)


def fork_and_leave(payload, ctx):
    """Returns the exit codes of two processes that it forked, which exit with 0 and with 3."""

    def left(code):
        forked = os.fork()
        if not forked:
            os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1])

    return [left(0), left(3)]
