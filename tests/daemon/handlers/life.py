"""Handlers that use, between them, everything that a context offers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pgrouse import Defer, Item, Retry


async def echo(payload, ctx):
    return None if isinstance(payload, bytes) else payload


async def again(payload, ctx):
    """Fails once, and is then put off once, to a moment."""
    if ctx.attempt == 1:
        raise Retry(after=0.05)
    if ctx.runs == 2:
        return Defer(until=datetime.now(UTC) + timedelta(seconds=0.05), state={"at": 1.5})
    return [ctx.waited_s >= 0, ctx.state]


async def effect(payload, ctx):
    """Publishes with its own completion."""
    async with ctx.transaction():
        await ctx.publish("echo", {"from": ctx.id}, delay=timedelta(milliseconds=10), ttl=timedelta(hours=1))
        ctx.progress(1, 2)
        ctx.output = await ctx.step("once", one_async)


async def one_async():
    return 0.1


def in_thread(payload, ctx):
    done = ctx.step("once", lambda: 0.1)
    ctx.heartbeat(1)
    ctx.publish("echo", body=b"\x00\xff\\")
    return done


async def broken(payload, ctx):
    raise ValueError("it's broken: \\ '")


async def batch(items: list[Item], ctx):
    return [item.payload for item in items]
