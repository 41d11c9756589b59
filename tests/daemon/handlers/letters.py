"""Handlers of topics with dead letters, and of the dead letters."""

from __future__ import annotations

import work


async def pay(payload, ctx):
    """Fails while a gate is shut, in a different line and with different details for each message."""
    work.write("start", ctx)
    if not work.is_open("fixed"):
        raise ConnectionError(f"bank {payload['id']} did not answer within {payload['id'] * 7} ms")


def pay_in_thread(payload, ctx):
    work.write("start", ctx)
    raise ConnectionError(f"bank {payload['id']} did not answer within {payload['id'] * 7} ms")


pay_in_process = pay_in_thread


async def tend(payload, ctx):
    """Processes a dead letter."""
    work.write("tended", ctx, topic=ctx.topic, payload=payload, headers=ctx.headers, state=ctx.state, key=ctx.key)
    if payload.get("hopeless"):
        raise ValueError("no fix is known")
