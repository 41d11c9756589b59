"""Handlers that do what the payload says, and record under which claim they began and how they ended.

`do` is how they end; `for` is how long they run, in seconds; `fails` is how many attempts raise before.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from datetime import timedelta

from pgrouse import AsyncBatchContext, Defer, Fail, Item, Reject, Retry

JOURNAL = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
EFFECT = "INSERT INTO effect (id, claim_id) VALUES (%s, %s)"
SOON = timedelta(seconds=0.2)
# How an attempt ends whose handler raises this.
ENDED_AS = {Reject: "rejected", Defer: "deferred"}


def note(what, about, **more):
    """Append one entry with the time of this machine, which is the server's; a single write is never torn."""
    message = about._message
    entry = {"what": what, "id": message.id, "claim": message.claim_id, "topic": message.topic, "at": time.time()}
    os.write(JOURNAL, (json.dumps({**entry, "attempt": message.attempt, "pid": os.getpid(), **more}) + "\n").encode())


def _end(payload, ctx):
    """End as the payload says, by value or exception."""
    if ctx.attempt <= payload.get("fails", 0):
        raise ZeroDivisionError("not yet")
    match payload["do"]:
        case "reject":
            raise Reject("the payload is wrong")
        case "fail":
            raise Fail("the account is closed")
        case "raise":
            raise ZeroDivisionError("division by zero")
        case "retry" if ctx.attempt == 1:
            raise Retry(SOON, state={"page": 1}, reason="the shop is closed")
        case "defer" if ctx.state is None:
            raise Defer(SOON, state={"page": 1})
        case "block":
            time.sleep(0.5)  # blocks the whole event loop of an async handler, on purpose
        case "die":
            note("reported", ctx, how="failed")
            os._exit(3)
    return {"done": payload["tag"]}


def _report_error(error, ctx):
    note("reported", ctx, how=ENDED_AS.get(type(error), "failed"), error=repr(error)[:200])


async def run(payload, ctx):
    note("start", ctx)
    try:
        await asyncio.sleep(payload.get("for", 0))
        output = await _store(payload, ctx) if payload["do"].startswith("effect") else _end(payload, ctx)
    except asyncio.CancelledError:
        note("cancelled", ctx)
        raise
    except Exception as error:
        _report_error(error, ctx)
        raise
    if not ctx.completed:
        note("reported", ctx, how="success")
    return output


async def _store(payload, ctx):
    async with ctx.transaction() as conn:
        await conn.execute(EFFECT, [ctx.id, ctx._message.claim_id])
        await asyncio.sleep(payload.get("within", 0))
        if ctx.attempt <= payload.get("fails", 0) or payload["do"] == "effect then raise":
            raise ZeroDivisionError("rolled back")
        note("reported", ctx, how="success")


async def run_steps(payload, ctx):
    """The effect of each step is outside the database: here a line in the journal, which nothing rolls back."""
    note("start", ctx)
    try:
        for number in range(3):
            await ctx.step(f"step {number}", _buy, payload, ctx, number)
        _end({**payload, "fails": 2 if payload["do"] == "step then raise" else 0}, ctx)
    except asyncio.CancelledError:
        note("cancelled", ctx)
        raise
    except Exception as error:
        _report_error(error, ctx)
        raise
    note("reported", ctx, how="success")


async def _buy(payload, ctx, number):
    note("stepped", ctx, step=f"step {number}")
    await asyncio.sleep(payload["for"])
    return number


def run_in_thread(payload, ctx):
    note("start", ctx)
    try:
        time.sleep(payload.get("for", 0))
        output = _store_in_thread(payload, ctx) if payload["do"].startswith("effect") else _end(payload, ctx)
    except Exception as error:
        _report_error(error, ctx)
        raise
    if not ctx.completed:
        note("reported", ctx, how="success")
    return output


def _store_in_thread(payload, ctx):
    with ctx.transaction() as conn:
        conn.execute(EFFECT, [ctx.id, ctx._message.claim_id])
        time.sleep(payload.get("within", 0))
        if ctx.attempt <= payload.get("fails", 0) or payload["do"] == "effect then raise":
            raise ZeroDivisionError("rolled back")
        note("reported", ctx, how="success")


def run_in_process(payload, ctx):
    note("start", ctx)
    try:
        time.sleep(payload.get("for", 0))
        output = _end(payload, ctx)
    except Exception as error:
        _report_error(error, ctx)
        raise
    note("reported", ctx, how="success")
    return output


async def run_after_the_end(payload, ctx):
    """For ack_first: the message has ended when it begins."""
    note("start", ctx)
    await asyncio.sleep(payload.get("for", 0))


async def run_batch(items: list[Item], ctx: AsyncBatchContext):
    """Stores the effects of a whole batch in one transaction, except for rejected items."""
    for item in items:
        note("start", item)
    await asyncio.sleep(max(item.payload.get("for", 0) for item in items))
    rejected = [item for item in items if item.payload["do"] == "reject"]
    for item in rejected:
        note("reported", item, how="rejected")
        item.reject("the payload is wrong")
    others = [item for item in items if item not in rejected]
    try:
        async with ctx.transaction() as conn:
            for item in others:
                await conn.execute(EFFECT, [item.id, item._message.claim_id])
                item.complete()
                note("reported", item, how="success")
    except Exception as error:
        for item in others:
            _report_error(error, item)
        raise
