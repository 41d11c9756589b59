"""Handlers that publish further messages."""

from __future__ import annotations

import asyncio

from work import write

from pgrouse import Item


async def in_transaction(payload, ctx):
    async with ctx.transaction():
        published = await ctx.publish("next", {"of": ctx.id}, key="k")
        if payload == "raise":
            raise ValueError("changed my mind")
    write("published", None, id=ctx.id, next=published, became=published.outcome)


def in_transaction_in_thread(payload, ctx):
    with ctx.transaction():
        published = ctx.publish("next", {"of": ctx.id}, key="k")
        if payload == "raise":
            raise ValueError("changed my mind")
    write("published", None, id=ctx.id, next=published, became=published.outcome)


async def outside(payload, ctx):
    published = await ctx.publish("next", {"of": ctx.id}, headers={"h": 1})
    write("published", None, id=ctx.id, next=published, became=published.outcome)
    if payload == "raise":
        raise ValueError("too late")


def outside_in_thread(payload, ctx):
    published = ctx.publish("next", {"of": ctx.id}, headers={"h": 1})
    write("published", None, id=ctx.id, next=published, became=published.outcome)
    if payload == "raise":
        raise ValueError("too late")


def in_batch(items: list[Item], ctx):
    with ctx.transaction():
        for item in items:
            ctx.publish("next", {"of": item.id})


def in_child(payload, ctx):
    ctx.publish("next", payload)


async def forgets(payload, ctx):
    ctx.publish("next", {"of": ctx.id})


async def keeps_it(payload, ctx):
    kept = ctx.publish("next", {"of": ctx.id})
    write("kept", ctx, repr=repr(kept))


async def returns_it(payload, ctx):
    return ctx.publish("next", {"of": ctx.id})


async def forgets_in_transaction(payload, ctx):
    async with ctx.transaction():
        ctx.publish("next", {"of": ctx.id})


async def forgets_in_batch(items: list[Item], ctx):
    ctx.publish("next", {})


async def forgets_in_child(payload, ctx):
    ctx.publish("next", {})


async def leaves_it_to_tasks(payload, ctx):
    """All of these are awaited: the last one only when the handler has returned."""
    await asyncio.gather(ctx.publish("next", 1), ctx.publish("next", 2))
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.publish("next", 3))
    await asyncio.wait_for(ctx.publish("next", 4), 60)
    TASKS.append(asyncio.create_task(ctx.publish("next", 5)))


TASKS = []
