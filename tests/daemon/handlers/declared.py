"""Handlers that are declared in code."""

from __future__ import annotations

from pydantic import BaseModel
from work import write

from pgrouse import AsyncContext, topic


class Order(BaseModel):
    id: int


@topic("orders.created", max_attempts=4, backoff="none")
async def created(order: Order, ctx: AsyncContext) -> int:
    write("created", ctx)
    if ctx.attempt < 3:
        raise OSError("not yet")
    return order.id


@topic("orders.child", isolation="process")
def in_a_child(order: Order) -> int:
    write("child")
    return order.id


@topic("orders.list", batch_size=5)
def in_batches(orders: list[Order]) -> None:
    write("batch", size=len(orders))


in_a_child.every("1 seconds", Order(id=5))
