"""Handlers that return the search_path of their own statements."""

from __future__ import annotations


async def own(payload, ctx):
    async with ctx.transaction() as conn:
        row = await (await conn.execute("SHOW search_path")).fetchone()
        await ctx.publish("after", {})
        await ctx.step("once", lambda: 1)
        ctx.progress(1, 2)
        ctx.output = row[0]


def in_thread(payload, ctx):
    with ctx.transaction() as conn:
        ctx.output = conn.execute("SHOW search_path").fetchone()[0]
        ctx.progress(1, 2)


async def fails(payload, ctx):
    ctx.progress(1, 2)
    await ctx.step("once", lambda: 1)
    raise ValueError("no")


def after(payload, ctx):
    return ctx.heartbeat(1)
