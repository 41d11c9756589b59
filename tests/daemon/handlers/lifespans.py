"""Lifespans, and handlers that return what they get from them."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import asynccontextmanager, contextmanager

from work import is_open, until, write


@asynccontextmanager
async def lifespan():
    """Resources that belong to their event loop."""
    write("opened", pid=os.getpid())
    lock = asyncio.Lock()
    async with lock:
        pass
    yield {"pid": os.getpid(), "loop": asyncio.get_running_loop(), "lock": lock}
    write("closed", pid=os.getpid())


@contextmanager
def blocking():
    write("opened", pid=os.getpid())
    yield {"pid": os.getpid()}
    write("closed", pid=os.getpid())


@asynccontextmanager
async def failing():
    raise ConnectionError("no redis")
    yield


@asynccontextmanager
async def failing_in_children_until_open():
    is_child = not hasattr(sys.modules["__main__"], "__file__")
    if is_child and not is_open("redis"):
        raise ConnectionError("no redis")
    yield {"pid": os.getpid()}


@asynccontextmanager
async def hanging():
    write("hanging")
    await asyncio.sleep(3600)
    yield


@asynccontextmanager
async def hanging_at_end():
    yield {"pid": os.getpid()}
    await asyncio.sleep(3600)


@asynccontextmanager
async def breaking():
    async def watch():
        await until(lambda: is_open("break"))
        raise ConnectionError("redis is gone")

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        yield {"pid": os.getpid()}


async def undecorated():
    yield


def needs_an_argument(app):
    return app


async def on_the_loop(payload, ctx):
    await asyncio.sleep(0)
    if "loop" in ctx.resources:
        assert ctx.resources["loop"] is asyncio.get_running_loop()
        async with ctx.resources["lock"]:
            await asyncio.sleep(0)
    return ctx.resources["pid"]


def in_thread(payload, ctx):
    return ctx.resources["pid"]


def in_process(payload, ctx):
    if payload == "die":
        os._exit(3)
    return ctx.resources["pid"]


async_in_process = on_the_loop


async def batch(payloads: list, ctx):
    return [ctx.resources["pid"]] * len(payloads)


def without(payload, ctx):
    return ctx.resources


async def stop_later(payload, ctx):
    write("start")
    await asyncio.sleep(0.5)
    write("handler ended")


def slow_in_process(payload, ctx):
    write("start")
    time.sleep(3600)
