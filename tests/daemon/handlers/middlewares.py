"""Middleware that writes what it is around, and handlers of each kind."""

from __future__ import annotations

import asyncio

from work import write


async def outer(ctx, call_next):
    write("outer", topic=ctx.topic)
    return await call_next()


async def inner(ctx, call_next):
    write("inner", topic=ctx.topic)
    return {"changed": await call_next()}


def blocking(ctx, call_next):
    write("blocking", topic=ctx.topic)
    return {"changed": call_next()}


def needs_more(ctx):
    return ctx


async def on_the_loop(payload):
    await asyncio.sleep(0)
    return 1


def in_thread():
    return 1


in_process = in_thread
async_in_process = on_the_loop


async def forever(payload):
    await asyncio.sleep(3600)


async def noting_the_end(ctx, call_next):
    try:
        await call_next()
    except BaseException as error:
        write(type(error).__name__)
        raise
