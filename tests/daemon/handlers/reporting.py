"""Handlers that report while they run: progress, longer locks; and that check for a cancellation."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from work import is_open, until, until_in_thread, write

from pgrouse import LockLost


def report_in_thread(payload, ctx):
    """Report each of these, then wait for the gate, then report the last one and return at once."""
    for step in payload["steps"]:
        ctx.progress(*step)
    write("reported", ctx)
    until_in_thread(lambda: is_open("gate"))
    if "last" in payload:
        ctx.progress(*payload["last"])


async def report(payload, ctx):
    for step in payload["steps"]:
        ctx.progress(*step)
    write("reported", ctx)
    await until(lambda: is_open("gate"))
    if "last" in payload:
        ctx.progress(*payload["last"])


report_in_process = report_in_thread


async def report_in_transaction(payload, ctx):
    async with ctx.transaction() as conn:
        ctx.progress(3, 3, "rows")
        await conn.execute("SELECT 1")


async def report_nonsense(payload, ctx):
    for call in (
        lambda: ctx.progress(-1),
        lambda: ctx.progress("many"),
        lambda: ctx.progress(1, float("nan")),
        lambda: ctx.progress(True),
        lambda: ctx.progress(1, 2, "x" * 51),
        lambda: ctx.progress(1, unit=5),
        lambda: ctx.heartbeat(extend=-1),
        lambda: ctx.heartbeat(extend="soon"),
        lambda: ctx.heartbeat(extend=timedelta(days=8)),
        lambda: ctx.heartbeat(extend=float("nan")),
    ):
        try:
            call()
        except ValueError as error:
            write("refused", ctx, error=str(error))


async def report_blocking(payload, ctx):
    """Blocks the event loop after a report."""
    ctx.progress(1, 2)
    write("reported", ctx)
    while not is_open("gate"):
        time.sleep(0.01)  # noqa: ASYNC251 - that is the fault


def report_fast(payload, ctx):
    """Report continuously until the gate opens, then wait for the next gate."""
    count = 0
    while count % 1000 or not is_open("enough"):
        count += 1
        ctx.progress(count)
        if count % 1000 == 0:
            time.sleep(0.001)
    write("counted", ctx, count=count)
    until_in_thread(lambda: is_open("gate"))


async def extend(payload, ctx):
    await ctx.heartbeat()
    try:
        await ctx.heartbeat(extend=payload)
    except LockLost as error:
        write("lost", ctx, error=str(error))
        raise
    write("extended", ctx)
    await until(lambda: is_open("gate"))


def extend_in_thread(payload, ctx):
    ctx.heartbeat()
    try:
        ctx.heartbeat(extend=f"{payload}s")
    except LockLost as error:
        write("lost", ctx, error=str(error))
        raise
    write("extended", ctx)
    until_in_thread(lambda: is_open("gate"))


extend_in_process = extend_in_thread


def extend_at_gate(payload, ctx):
    write("start", ctx)
    until_in_thread(lambda: is_open("extend"))
    extend_in_thread(payload, ctx)


def poll_in_thread(payload, ctx):
    """Runs until it is cancelled."""
    write("start", ctx, cancelled=ctx.cancelled)
    until_in_thread(lambda: ctx.lost)
    write("end", ctx, cancelled=ctx.cancelled)


async def poll(payload, ctx):
    write("start", ctx, cancelled=ctx.cancelled)
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        write("end", ctx, cancelled=ctx.cancelled)
        raise
