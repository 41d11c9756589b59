"""Handlers that run until their gate opens: "gate", or the name in the payload."""

from __future__ import annotations

import asyncio
import time

from work import is_open, journalled, until, until_in_thread, write


def _gate(payload):
    return payload if isinstance(payload, str) else "gate"


async def hold(payload, ctx):
    with journalled(ctx):
        await until(lambda: is_open(_gate(payload)))


def hold_in_thread(payload, ctx):
    with journalled(ctx):
        until_in_thread(lambda: is_open(_gate(payload)))


hold_in_process = hold_in_thread


async def hold_stubbornly(payload, ctx):
    """Swallows every cancellation."""
    write("start", ctx)
    while not is_open(_gate(payload)):
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            write("stubborn", ctx)
    write("end", ctx)


async def hold_until_stopping(payload, ctx):
    """Checks whether the daemon is stopping, as a long handler should."""
    write("start", ctx)
    await until(lambda: ctx.stopping)
    write("saw stopping", ctx)


async def nap(payload, ctx):
    """Runs for the given number of seconds."""
    write("start", ctx)
    await asyncio.sleep(payload)
    write("end", ctx)


def nap_in_thread(payload, ctx):
    write("start", ctx)
    time.sleep(payload)
    write("end", ctx)


def hold_in_thread_until_cancelled(payload, ctx):
    """Checks whether the message was cancelled, as a long handler in a thread should."""
    write("start", ctx)
    until_in_thread(lambda: ctx.cancelled)
    write("saw cancelled", ctx, lost=ctx.lost)
