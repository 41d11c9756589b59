"""Handlers that record their current span."""

from __future__ import annotations

import asyncio

from opentelemetry import trace
from work import write

from pgrouse import Item, publish


def _record(ctx, message_id, **more):
    span = trace.get_current_span().get_span_context()
    about = {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}", **more}
    write("span", None, id=message_id, **about)
    ctx.log.info("handler.said")
    with trace.get_tracer("shop").start_as_current_span("inner"):
        pass


async def record(payload, ctx):
    _record(ctx, ctx.id)


def record_in_thread(payload, ctx):
    _record(ctx, ctx.id)


def record_in_process(payload, ctx):
    _record(ctx, ctx.id)
    trace.get_tracer_provider().force_flush()


async def record_batch(items: list[Item], ctx):
    _record(ctx, items[0].id)
    items[-1].reject("the last one is no good")


async def pass_on(payload, ctx):
    async with ctx.transaction() as conn:
        await publish(conn, "onward", payload)


async def break_(payload, ctx):
    raise LookupError("there is no such order\nask the shop")


async def linger(payload, ctx):
    await asyncio.sleep(60)
