"""Handlers of encrypted topics: they record what they received, and store output and state."""

import os
from typing import Any

from pydantic import BaseModel
from work import write

from pgrouse import AsyncBatchContext, AsyncContext, Context, Item, Retry


class Card(BaseModel):
    number: str


async def pay(card: Card, ctx: AsyncContext) -> dict[str, Any]:
    write("paid", ctx, number=card.number)
    return {"number": card.number}


async def in_two_steps(payload: Any, ctx: AsyncContext) -> Any:
    write("step", ctx, state=ctx.state, payload=payload)
    return payload if ctx.state else Retry(state={"secret-step": 2})


async def in_a_transaction(payload: Any, ctx: AsyncContext) -> None:
    async with ctx.transaction():
        ctx.output = payload


def bytes_in_a_child(body: bytes, ctx: Context) -> str:
    write("child", ctx, body=body.decode(), key=os.environ.get("OLD_KEY"))
    return body.decode()


async def charge(payload: Any, ctx: AsyncContext) -> Any:
    return await ctx.step("charge", lambda: write("charged", ctx))


async def pass_on(payload: Any, ctx: AsyncContext) -> None:
    await ctx.publish("plain", payload, headers=ctx.headers)


async def join(payload: Any, ctx: AsyncContext) -> None:
    write("joined", ctx, outputs=[each.output for each in await ctx.predecessors()])


async def batch(items: list[Item[Card]], ctx: AsyncBatchContext) -> None:
    for item in items:
        write("batched", id=item.id, number=item.payload.number)
        item.complete({"number": item.payload.number})


async def fail(payload: Any, ctx: AsyncContext) -> None:
    raise ValueError(f"cannot pay {payload}")
