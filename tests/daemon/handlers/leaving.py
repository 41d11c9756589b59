"""Handlers that cancel their own task, exit from a task that they started, or leave endless tasks behind."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

from work import write

_left = []


async def cancel_itself(payload, ctx):
    """Cancels its task, and then does what the payload says."""
    write("start", ctx)
    asyncio.current_task().cancel()
    if payload == "return":
        return
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        if payload == "raise":
            raise


async def cancel_itself_in_a_batch(payloads: list):
    asyncio.current_task().cancel()
    await asyncio.sleep(3600)


async def cancel_everything(payload, ctx):
    for task in asyncio.all_tasks():
        task.cancel()


async def exit_in_a_task(payload, ctx):
    write("start", ctx)
    await asyncio.create_task(_exit())


async def exit_in_a_task_of_its_own(payload, ctx):
    write("start", ctx)
    _left.append(asyncio.create_task(_exit()))


async def leave_by(payload, ctx):
    """Leaves as the function does that the payload names."""
    await globals()[payload]("raise", ctx)


async def _exit():
    sys.exit(0)


async def wait_for_a_thread(payload, ctx):
    write("start", ctx)
    await asyncio.to_thread(time.sleep, 3600)


async def leave_a_task(payload, ctx):
    """Its task swallows every cancellation."""
    _left.append(asyncio.create_task(_stay()))


async def _stay():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


def leave_a_thread(payload, ctx):
    threading.Thread(target=time.sleep, args=[3600]).start()
