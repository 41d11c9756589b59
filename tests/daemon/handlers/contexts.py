"""Handlers that tell what they see in their context, and leave something of their own there."""

from __future__ import annotations

import asyncio
import decimal
from contextvars import ContextVar
from typing import Any

import structlog
from work import write

from pgrouse import AsyncContext, Context, Failure

left: ContextVar[str] = ContextVar("left", default="nothing")

# As modules of applications do when they are imported.
left.set("import")
structlog.contextvars.bind_contextvars(app="shop")
decimal.getcontext().prec = 40


def seen() -> dict[str, Any]:
    return {
        "left": left.get(),
        "bound": structlog.contextvars.get_contextvars(),
        "digits": decimal.getcontext().prec,
    }


def leave(payload: Any) -> dict[str, Any]:
    found = seen()
    left.set(str(payload))
    structlog.contextvars.bind_contextvars(secret=payload)
    decimal.getcontext().prec = 5
    return found


async def at_once(payload: Any) -> Any:
    return leave(payload)


async def waits(payload: Any) -> Any:
    found = leave(payload)
    await asyncio.sleep(0.01)
    # Its own context stays, and tasks and threads get it.
    assert (left.get(), decimal.getcontext().prec) == (str(payload), 5)
    assert await asyncio.gather(_left()) == [str(payload)]
    assert await asyncio.to_thread(left.get) == str(payload)
    return found


async def _left() -> str:
    await asyncio.sleep(0)
    return left.get()


def in_thread(payload: Any) -> Any:
    return leave(payload)


async def batch(payloads: list[Any]) -> Any:
    found = [leave(each) for each in payloads]
    await asyncio.sleep(0.01)
    return found


def batch_in_thread(payloads: list[Any]) -> Any:
    return [leave(each) for each in payloads]


async def fails(payload: Any, ctx: AsyncContext) -> Any:
    if ctx.attempt > 1:
        return seen()
    await asyncio.sleep(0)
    leave(payload)
    raise ValueError(payload)


async def around(ctx: AsyncContext, call_next: Any) -> Any:
    before = left.get()
    left.set("middleware")
    result = await call_next()
    return {"before": before, "handler saw": result["left"], "after": left.get()}


def around_in_thread(ctx: Context, call_next: Any) -> Any:
    before = left.get()
    left.set("middleware")
    result = call_next()
    return {"before": before, "handler saw": result["left"], "after": left.get()}


def hook(failure: Failure) -> None:
    write("hook", id=failure.message_id, left=left.get())


async def broken_hook(failure: Failure) -> None:
    raise RuntimeError(left.get())
