"""Batch handlers: each writes the ids of its batch into the journal, and does what the payloads say."""

from __future__ import annotations

import os
import signal
from datetime import timedelta

from pydantic import BaseModel
from work import is_open, journalled, until, until_in_thread, write

from pgrouse import AsyncBatchContext, BatchContext, Fail, Item, Reject, Retry

INSERT = "INSERT INTO effect (message_id) VALUES (%s)"


class Order(BaseModel):
    id: int


def _ids(items):
    return [item.id for item in items]


def _do(item):
    match item.payload:
        case "reject":
            item.reject("not a word of it is true")
        case "fail":
            item.fail("the account is closed")
        case "retry":
            item.retry(timedelta(hours=1), state={"page": 7}, reason="the shop is shut")
        case "defer":
            item.defer(timedelta(hours=1), state={"page": 8})
        case "complete":
            item.complete({"kept": item.id})


def settle_singly_in_thread(items: list[Item], ctx: BatchContext):
    write("start", ids=_ids(items))
    for item in items:
        _do(item)


async def settle_singly(items: list[Item], ctx: AsyncBatchContext):
    settle_singly_in_thread(items, ctx)


settle_singly_in_process = settle_singly_in_thread


async def return_outcomes(payloads: list[str]):
    said = {"reject": Reject("bad"), "fail": Fail("gone"), "retry": Retry(timedelta(hours=1)), "raise": KeyError("x")}
    return [said.get(payload, {"kept": payload}) for payload in payloads]


async def stumble(items: list[Item]):
    """Raises at the message that requests it, in the middle of its batch."""
    write("start", ids=_ids(items), attempts=[item.attempt for item in items])
    for item in items:
        if item.payload == "raise":
            raise ZeroDivisionError("division by zero")
        item.complete({"worked": item.id})


async def take_orders(orders: list[Order]):
    write("start", orders=[order.id for order in orders])
    return [order.id * 10 for order in orders]


async def count(payloads: list):
    write("start", size=len(payloads))
    return [len(payloads)] * len(payloads)


async def hold(items: list[Item], ctx: AsyncBatchContext):
    with journalled(None, ids=_ids(items)):
        await until(lambda: is_open("gate"))
        write("lost", ids=[item.id for item in items if item.lost])


def hold_in_thread(items: list[Item], ctx: BatchContext):
    with journalled(None, ids=_ids(items)):
        until_in_thread(lambda: is_open("gate"))


hold_in_process = hold_in_thread


async def die(items: list[Item]):
    """Kills its own process in the middle of the first batch."""
    write("start", ids=_ids(items))
    for number, item in enumerate(items):
        if number == len(items) // 2 and items[0].attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        item.complete({"worked": item.id})


def die_in_process(items: list[Item]):
    """Kills its child if one of its messages requests it."""
    write("start", ids=_ids(items))
    if any(item.payload == "die" for item in items):
        os.kill(os.getpid(), signal.SIGKILL)


async def store(items: list[Item], ctx: AsyncBatchContext):
    """Stores all messages except the rejected ones, in one transaction."""
    write("start", ids=_ids(items))
    async with ctx.transaction() as conn:
        for item in items:
            if item.payload == "reject":
                item.reject("bad")
                continue
            await conn.execute(INSERT, [item.id])
            item.complete({"stored": float("nan") if item.payload == "NaN" else item.id})
        write("stored", ids=_ids(items))
        if any(item.payload == "wait" for item in items):
            await until(lambda: is_open("gate"))
        if any(item.payload == "raise" for item in items):
            raise ValueError("changed my mind")
        if any(item.payload == "die" and item.attempt == 1 for item in items):
            os.kill(os.getpid(), signal.SIGKILL)
    write("done", completed=ctx.completed)


def store_in_thread(items: list[Item], ctx: BatchContext):
    write("start", ids=_ids(items))
    with ctx.transaction() as conn:
        for item in items:
            conn.execute(INSERT, [item.id])
        write("stored", ids=_ids(items))
        if any(item.payload == "wait" for item in items):
            until_in_thread(lambda: is_open("gate"))
        if any(item.payload == "raise" for item in items):
            raise ValueError("changed my mind")
    write("done", completed=ctx.completed)


async def store_and_change_mind(items: list[Item], ctx: AsyncBatchContext):
    """Catches the error that rolled its transaction back, and sets other outcomes."""
    try:
        async with ctx.transaction() as conn:
            for item in items:
                await conn.execute(INSERT, [item.id])
                item.complete()
            raise ValueError("changed my mind")  # noqa: TRY301 - that is what it is about
    except ValueError:
        for item in items:
            item.fail("nothing was stored")


def store_from_a_child(items: list[Item], ctx: BatchContext):
    with ctx.transaction():
        pass
