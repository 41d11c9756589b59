"""The handlers of most tests. Each writes into the journal, so that tests know what ran, where and when."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import BaseModel

from pgrouse import Defer, Fail, Pause, Reject, Retry

JOURNAL = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
GATES = Path(os.environ["GATES"])


def write(what, ctx=None, **more):
    """Append one entry; a single write is atomic."""
    about = {} if ctx is None else {"id": ctx.id, "attempt": ctx.attempt}
    entry = {"what": what, **about, "pid": os.getpid(), "at": time.monotonic(), **more}
    os.write(JOURNAL, (json.dumps(entry) + "\n").encode())


def is_open(gate):
    return (GATES / gate).exists()


async def until(condition):
    while not condition():  # noqa: ASYNC110 - what it waits for happens outside of this process
        await asyncio.sleep(0.01)


def until_in_thread(condition):
    while not condition():
        time.sleep(0.01)


@contextmanager
def journalled(ctx, **more):
    """Write the start and the kind of end: end, cancelled, or broken."""
    write("start", ctx, **more)
    try:
        yield
    except asyncio.CancelledError:
        write("cancelled", ctx)
        raise
    except BaseException as error:
        write("broken", ctx, error=repr(error))
        raise
    write("end", ctx)


# Return the argument.


async def echo(payload, ctx):
    write("start", ctx)
    return payload


def echo_in_thread(payload, ctx):
    write("start", ctx, thread=threading.current_thread().name)
    return payload


def joined(predecessors):
    return [[each.id, each.topic, each.output, each.error, each.redriven_as, each.succeeded] for each in predecessors]


async def join(payload, ctx):
    return joined(await ctx.predecessors())


def join_in_thread(payload, ctx):
    return joined(ctx.predecessors())


async def join_in_a_transaction(payload, ctx):
    async with ctx.transaction():
        ctx.output = joined(await ctx.predecessors())


# Do what the payload says.


def _act(payload, ctx):
    write("start", ctx, state=ctx.state)
    match payload["do"]:
        case "return":
            return payload.get("value")
        case "reject":
            raise Reject("not a word of it is true")
        case "fail":
            raise Fail("the account is closed")
        case "raise":
            raise ZeroDivisionError("division by zero")
        case "retry":
            raise Retry(timedelta(seconds=payload["after"]), state={"page": 7}, reason="the shop is shut")
        case "defer":
            raise Defer(timedelta(seconds=payload["after"]), state={"page": 8})
        case "defer until":
            raise Defer(until=datetime.now(UTC) + timedelta(seconds=payload["after"]))
        case "pause":
            raise Pause(
                after=payload["after"], channel=payload.get("channel", False), state={"page": 9}, reason="429\0"
            )


def act_in_thread(payload, ctx):
    if ctx.state is not None:
        return {"resumed": ctx.state}
    return _act(payload, ctx)


async def act(payload, ctx):
    return act_in_thread(payload, ctx)


act_in_process = act_in_thread


async def act_by_returning(payload, ctx):
    """The same, but the outcome is returned instead of raised."""
    try:
        return act_in_thread(payload, ctx)
    except (Reject, Fail, Retry, Defer) as said:
        return said


class Order(BaseModel):
    id: int
    lines: list[str]


async def take_order(order: Order, ctx):
    write("start", ctx)
    return order.id


async def take_bytes(body: bytes, ctx):
    write("start", ctx, body=list(body))


async def return_context(payload, ctx):
    return {
        "id": ctx.id,
        "topic": ctx.topic,
        "channel": ctx.channel,
        "key": ctx.key,
        "attempt": ctx.attempt,
        "runs": ctx.runs,
        "max_attempts": ctx.max_attempts,
        "headers": ctx.headers,
        "state": ctx.state,
        "stopping": ctx.stopping,
        "lost": ctx.lost,
    }


async def describe(payload, ctx):
    write("got", ctx, repr=repr(payload)[:1000])


async def measure(payload, ctx):
    return len(repr(payload))


def measure_in_thread(payload, ctx):
    return len(repr(payload))


async def locked_now(payload, ctx):
    """Returns how many messages are locked while it runs."""
    async with ctx.transaction() as conn:
        cursor = await conn.execute("SELECT count(*) FROM messages.message WHERE claim_id IS NOT NULL")
        (ctx.output,) = await cursor.fetchone()


# Fail while the gate is shut.


async def publish_own(payload, ctx):
    await ctx.publish("next", timeout="90s", backoff="linear", retention="90d")


async def fail_until_gate(payload, ctx):
    await asyncio.sleep(0.02)
    if not is_open("gate"):
        raise ConnectionError("the other side is down")
