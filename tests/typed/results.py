"""The types of results, of messages and of steps: `./go check` reads this file, and nothing runs it.

An ignore that is not needed is an error: each of them is a mistake that is detected.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, assert_type

import psycopg
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from pgrouse import (
    AsyncBatchContext,
    AsyncClient,
    AsyncContext,
    AsyncMessageHandle,
    Client,
    Context,
    Item,
    MessageHandle,
    Published,
    Reject,
    Retry,
    Waiter,
    topic,
)


class Order(BaseModel):
    id: int


@dataclass
class Receipt:
    number: int
    url: str = ""


@topic("receipt.send")
async def send_receipt(order: Order, ctx: AsyncContext) -> Receipt:
    return Receipt(order.id)


@topic("receipt.approve")
async def approve_receipt(order: Order, ctx: AsyncContext) -> None:
    assert_type(await ctx.wait_for_event("approved", "7d", returns=Receipt), Receipt)
    assert_type(await ctx.wait_for_event("approved"), Any)
    assert_type(await ctx.signal_url("approved"), str)
    await ctx.wait_for_event(7)  # type: ignore[call-overload]


@topic("receipt.ask")
def ask_for_receipt(order: Order, ctx: Context) -> Receipt:
    assert_type(ctx.signal_url("approved", expires="1d"), str)
    return ctx.wait_for_event("approved", returns=Receipt)


@topic("receipt.print", max_attempts=3)
def print_receipt(order: Order) -> Receipt | None:
    return None


@topic("receipt.check")
async def check_receipt(order: Order) -> Receipt | Reject | Retry:
    return Reject("no total")


@topic("receipt.find")
def find_receipt(order: Order) -> list[Receipt] | Reject:
    return Reject("no total")


@topic("receipt.list", batch_size=10)
def list_receipts(orders: list[Order]) -> list[Receipt | Reject]:
    return [Receipt(each.id) for each in orders]


@topic("receipt.count", batch_size=10)
async def count_receipts(orders: list[Item[Order]], ctx: AsyncBatchContext) -> list[int]:
    return [each.payload.id for each in orders]


@topic("receipt.drop", batch_size=10)
async def drop_receipts(orders: list[Order]) -> None: ...


@topic("nothing")
async def nothing() -> int:
    return 1


def blocking(conn: psycopg.Connection[Any], session: Session, client: Client, waiter: Waiter, ctx: Context) -> None:
    handle = send_receipt.publish(conn, Order(id=1))
    assert_type(handle, MessageHandle[Receipt])
    assert_type(handle.result(timeout=5), Receipt)
    assert_type(handle.result("5s", where=waiter), Receipt)
    assert_type(handle.result(where="postgresql://"), Receipt)
    assert_type(send_receipt.publish(client, Order(id=1)).result(), Receipt)
    assert_type(send_receipt.publish(ctx, Order(id=1)).result(where=client), Receipt)
    assert_type(print_receipt.publish(session, Order(id=1)).result(), Receipt | None)
    assert_type(check_receipt.publish(conn, Order(id=1)).result(), Receipt)
    assert_type(find_receipt.publish(conn, Order(id=1)).result(), list[Receipt])
    assert_type(list_receipts.publish(conn, Order(id=1)).result(), Receipt)
    assert_type(count_receipts.publish(conn, Order(id=1)).result(), int)
    assert_type(nothing.publish(conn, None).result(), int)
    assert_type(
        [each.result() for each in send_receipt.publish_many(conn, [Order(id=1)], returning=True)], list[Receipt]
    )
    an_id: int = handle
    a_published: Published = handle
    print(an_id, a_published, handle.outcome)
    print(handle.result().nmber)  # type: ignore[attr-defined]
    handle.result() + 1  # type: ignore[operator]
    handle.result(timeout=[5])  # type: ignore[arg-type]
    handle.result(5, waiter)  # type: ignore[call-arg]
    handle.result(where=7)  # type: ignore[arg-type]
    print(print_receipt.publish(conn, Order(id=1)).result().number)  # type: ignore[union-attr]
    number: int = handle.result()  # type: ignore[assignment]
    print(number)


async def awaited(
    conn: psycopg.AsyncConnection[Any], session: AsyncSession, client: AsyncClient, waiter: Waiter, ctx: AsyncContext
) -> None:
    handle = await send_receipt.publish(conn, Order(id=1))
    assert_type(handle, AsyncMessageHandle[Receipt])
    assert_type(await handle.result(timeout=5), Receipt)
    assert_type(await handle.result("5s", where=waiter), Receipt)
    assert_type(await (await send_receipt.publish(session, Order(id=1))).result(), Receipt)
    assert_type(await (await send_receipt.publish(client, Order(id=1))).result(), Receipt)
    assert_type(await (await send_receipt.publish(ctx, Order(id=1))).result(where=waiter), Receipt)
    assert_type(await (await print_receipt.publish(conn, Order(id=1))).result(), Receipt | None)
    assert_type(await (await check_receipt.publish(conn, Order(id=1))).result(), Receipt)
    assert_type(await (await list_receipts.publish(conn, Order(id=1))).result(), Receipt)
    assert_type(await (await count_receipts.publish(conn, Order(id=1))).result(), int)
    handle.result()  # type: ignore[unused-coroutine]
    print(handle.result().number)  # type: ignore[attr-defined]
    print((await handle.result()).nmber)  # type: ignore[attr-defined]
    receipt: str = await handle.result()  # type: ignore[assignment]
    print(receipt)


def charge(order: int, currency: str = "EUR") -> float:
    return 1.0


async def charge_async(order: int, currency: str = "EUR") -> float:
    return 1.0


def store(conn: psycopg.Connection[Any], order: int, count: int = 1) -> Receipt:
    return Receipt(order)


async def store_async(conn: psycopg.AsyncConnection[Any], order: int, count: int = 1) -> Receipt:
    return Receipt(order)


def steps(ctx: Context) -> None:
    assert_type(ctx.step("a", charge, 1), float)
    assert_type(ctx.step("a", charge, 1, currency="USD"), float)
    assert_type(ctx.step("a", partial(charge, 1)), float)
    assert_type(ctx.step("a", lambda: 1), int)
    assert_type(ctx.step("a", Receipt, 1), Receipt)
    assert_type(ctx.step("a", store, 1, transaction=True), Receipt)
    assert_type(ctx.step("a", store, 1, 2, transaction=True), Receipt)
    assert_type(ctx.step("a", lambda: {"number": 1}, returns=Receipt), Receipt)
    assert_type(ctx.step("a", charge, 1, returns=list[Receipt]), list[Receipt])
    assert_type(ctx.step("a", store, 1, returns=Receipt, transaction=True), Receipt)
    ctx.step("a", charge, 1, returns=int | None)
    ctx.step("a", charge)  # type: ignore[call-overload]
    ctx.step("a", charge, "1")  # type: ignore[call-overload]
    ctx.step("a", charge, 1, curency="USD")  # type: ignore[call-arg]
    ctx.step("a", store, 1)  # type: ignore[call-overload]
    ctx.step("a", store, "1", transaction=True)  # type: ignore[call-arg, arg-type]
    ctx.step("a", charge, 1, transaction=True)  # type: ignore[call-arg]
    ctx.step("a", charge, "1", returns=int)  # type: ignore[arg-type]
    print(ctx.step("a", Receipt, 1).nmber)  # type: ignore[attr-defined]
    text: str = ctx.step("a", charge, 1)  # type: ignore[assignment]
    print(text)


async def steps_awaited(ctx: AsyncContext) -> None:
    assert_type(await ctx.step("a", charge_async, 1), float)
    assert_type(await ctx.step("a", charge, 1, currency="USD"), float)
    assert_type(await ctx.step("a", lambda: charge_async(1)), float)
    assert_type(await ctx.step("a", Receipt, 1), Receipt)
    assert_type(await ctx.step("a", store_async, 1, transaction=True), Receipt)
    assert_type(await ctx.step("a", charge_async, 1, returns=Receipt), Receipt)
    assert_type(await ctx.step("a", store_async, 1, returns=list[int], transaction=True), list[int])
    await ctx.step("a", charge_async)  # type: ignore[call-overload]
    await ctx.step("a", charge_async, "1")  # type: ignore[call-overload]
    await ctx.step("a", charge_async, 1, curency="USD")  # type: ignore[call-arg]
    await ctx.step("a", store_async, "1", transaction=True)  # type: ignore[call-arg, arg-type]
    await ctx.step("a", store, 1, transaction=True)  # type: ignore[call-arg, arg-type]
    (await ctx.step("a", charge_async, 1)).upper()  # type: ignore[attr-defined]
    ctx.step("a", charge_async, 1)  # type: ignore[unused-coroutine]


@topic("untyped")
def untyped(order: Order) -> Any:  # pyright: ignore[reportAny]
    return order.id


def without_a_type(conn: psycopg.Connection[Any]) -> None:
    assert_type(untyped.publish(conn, Order(id=1)).result(), Any)
    assert_type(drop_receipts.publish(conn, Order(id=1)).result(), Any)
    value = untyped.publish(conn, Order(id=1)).result()  # pyright: ignore[reportAny]
    print(value)  # pyright: ignore[reportAny]


async def without_a_type_awaited(conn: psycopg.AsyncConnection[Any]) -> None:
    assert_type(await (await untyped.publish(conn, Order(id=1))).result(), Any)
    assert_type(await (await drop_receipts.publish(conn, Order(id=1))).result(), Any)
    value = await (await drop_receipts.publish(conn, Order(id=1))).result()  # pyright: ignore[reportAny]
    print(value)  # pyright: ignore[reportAny]
