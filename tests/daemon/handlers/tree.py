"""Handlers that add messages to the batch of their own message."""

from __future__ import annotations

from work import is_open, until


async def grow(level, ctx):
    for _ in range(2 if level > 1 else 0):
        await ctx.publish("grow", level - 1, batch=ctx.batch_id)


def grow_in_thread(level, ctx):
    for _ in range(2 if level > 1 else 0):
        ctx.publish("grow_in_thread", level - 1, batch=ctx.batch_id)


async def grow_in_a_transaction(level, ctx):
    async with ctx.transaction():
        for _ in range(2 if level > 1 else 0):
            await ctx.publish("grow_in_a_transaction", level - 1, batch=ctx.batch_id)


async def grow_and_wait(payload, ctx):
    await ctx.publish("leaf", 1, batch=ctx.batch_id)
    await until(lambda: is_open("gate"))
