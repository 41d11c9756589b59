"""Handlers that wait for events."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass

from work import write


@dataclass
class Approval:
    by: str


def ask(ctx):
    write("asked", ctx)


async def approve(payload, ctx):
    """Asks once, and waits."""
    await ctx.step("ask", ask, ctx)
    approval = await ctx.wait_for_event("approved", payload.get("timeout"), returns=Approval)
    write("approved", ctx, by=approval.by)
    return {"by": approval.by, "attempt": ctx.attempt, "runs": ctx.runs}


def approve_in_thread(payload, ctx):
    ctx.step("ask", ask, ctx)
    approval = ctx.wait_for_event("approved", payload.get("timeout"), returns=Approval)
    return {"by": approval.by, "attempt": ctx.attempt, "runs": ctx.runs}


def approve_in_process(payload, ctx):
    """It has no steps: what is before the wait runs again."""
    write("asked", ctx)
    approval = ctx.wait_for_event("approved", payload.get("timeout"), returns=Approval)
    return {"by": approval.by, "attempt": ctx.attempt, "runs": ctx.runs}


async def approve_in_process_async(payload, ctx):
    approval = await ctx.wait_for_event("approved", payload.get("timeout"))
    return {"by": approval["by"], "attempt": ctx.attempt, "runs": ctx.runs}


async def catch_timeout(payload, ctx):
    """Goes on without an approval, in each attempt the same, and fails once after it."""
    try:
        await ctx.wait_for_event("approved", payload["timeout"])
    except TimeoutError as error:
        outcome = type(error).__name__
    else:
        outcome = "approved"
    write("decided", ctx, outcome=outcome)
    if len(payload["fails"]) >= ctx.attempt:
        raise RuntimeError("after the decision")
    return outcome


async def two_of_a_name(payload, ctx):
    first = await ctx.wait_for_event("answer")
    second = await ctx.wait_for_event("answer")
    return [first, second]


async def die_after_the_event(payload, ctx):
    """Kills its own process right after it has got the event, once."""
    got = await ctx.wait_for_event("approved")
    write("got", ctx, payload=got)
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return got


async def clean_up(payload, ctx):
    """Takes its time while the wait ends the attempt."""
    try:
        await ctx.wait_for_event("approved")
    except Exception:  # noqa: BLE001 - it must not catch the wait
        return "swallowed"
    finally:
        await asyncio.sleep(0.2)
        write("cleaned", ctx, lost=ctx.lost)
    return "approved"


async def forget_to_await(payload, ctx):
    ctx.wait_for_event("approved")


async def in_a_transaction(payload, ctx):
    async with ctx.transaction():
        await ctx.wait_for_event("approved")


async def hand_out(payload, ctx):
    url = await ctx.step("url", make_url, ctx)
    write("url", ctx, url=url)
    return await ctx.wait_for_event("approved", "1h")


async def make_url(ctx):
    return await ctx.signal_url("approved", "1h")


async def wrong_type(payload, ctx):
    await ctx.wait_for_event("approved", returns=Approval)


async def batch(payloads, ctx):
    await ctx.wait_for_event("approved")


async def signal_another(payload, ctx):
    """Continues another message, from a handler."""
    async with ctx.transaction() as conn:
        await conn.execute("SELECT messages.signal(%s, 'approved', '{\"by\": \"a handler\"}')", [payload["id"]])
