"""The types of topics that are declared in code: `./go check` reads this file, and nothing runs it.

An ignore that is not needed is an error: each of them is a mistake that is detected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

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
    topic,
)
from pgrouse.publishing.drivers.connection_types import AsyncpgConnection, DjangoConnection
from pgrouse.publishing.published import PublishedMany


class Order(BaseModel):
    id: int


class Mail(TypedDict):
    to: str


@dataclass
class Report:
    pages: int


@topic("orders.created", max_attempts=5, backoff="exponential", timeout="30s", concurrency=10)
async def order_created(order: Order, ctx: AsyncContext) -> int:
    return order.id


@topic("mail.send", backoff={"kind": "linear", "base": "5s"}, channels={"eu": {"concurrency": 1}}, strict_lock=True)
def mail_send(mail: Mail) -> str:
    return mail["to"]


@topic("nothing")
def nothing() -> None: ...


@topic("image.store")
def image_store(image: bytes) -> None: ...


@topic("report.build", batch_size=10, batch_timeout=0.5)
def report_build(reports: list[Report]) -> None: ...


@topic("report.mail", batch_size=10)
async def report_mail(items: list[Item[Report]], ctx: AsyncBatchContext) -> None:
    await mail_send.publish(ctx, {"to": "a"})


def blocking(
    conn: psycopg.Connection[Any], session: Session, django: DjangoConnection, cursor: psycopg.Cursor[Any]
) -> None:
    assert_type(order_created.publish(conn, Order(id=1)), MessageHandle[int])
    assert_type(order_created.publish(session, Order(id=1), key="k", delay="5s"), MessageHandle[int])
    assert_type(order_created.publish(django, Order(id=1)), MessageHandle[int])
    assert_type(order_created.publish_many(cursor, [Order(id=1)], priority=1), PublishedMany)
    assert_type(mail_send.publish(conn, {"to": "a"}), MessageHandle[str])
    assert_type(report_build.publish(conn, Report(1)), MessageHandle[Any])
    assert_type(report_mail.publish(conn, Report(1)), MessageHandle[Any])
    assert_type(order_created.publish_many(conn, [Order(id=1)], returning=True), list[MessageHandle[int]])
    nothing.publish(conn, None)
    image_store.publish(conn, b"...")
    order_created.publish(conn, {"id": 1})  # type: ignore[call-overload]
    order_created.publish(conn)  # type: ignore[call-overload]
    order_created.publish(conn, Order(id=1), kye="k")  # type: ignore[call-overload]
    order_created.publish(conn, Order(id=1), priority="high")  # type: ignore[call-overload]
    order_created.publish("dsn", Order(id=1))  # type: ignore[call-overload]
    order_created.publish_many(conn, [{"id": 1}])  # type: ignore[list-item]
    mail_send.publish(conn, {"too": "a"})  # type: ignore[call-overload]
    report_build.publish(conn, [Report(1)])  # type: ignore[call-overload]
    report_mail.publish(conn, Order(id=1))  # type: ignore[call-overload]
    image_store.publish(conn, "...")  # type: ignore[call-overload]


async def awaited(conn: psycopg.AsyncConnection[Any], session: AsyncSession, asyncpg: AsyncpgConnection) -> None:
    assert_type(await order_created.publish(conn, Order(id=1)), AsyncMessageHandle[int])
    assert_type(await order_created.publish(session, Order(id=1), key="k"), AsyncMessageHandle[int])
    assert_type(await order_created.publish(asyncpg, Order(id=1)), AsyncMessageHandle[int])
    assert_type(await order_created.publish_many(session, [Order(id=1)]), PublishedMany)
    await order_created.publish(session, Report(1))  # type: ignore[call-overload]
    order_created.publish(conn, Order(id=1))  # type: ignore[unused-coroutine]
    order_created.publish(session, Order(id=1))  # type: ignore[unused-coroutine]
    order_created.publish_many(session, [Order(id=1)])  # type: ignore[unused-coroutine]


async def called(ctx: AsyncContext, item: Item[Report], batch: AsyncBatchContext) -> None:
    assert_type(await order_created(Order(id=1), ctx), int)
    assert_type(mail_send({"to": "a"}), str)
    assert_type(order_created.name, str)
    nothing()
    report_build([Report(1)])
    await report_mail([item], batch)
    await order_created(Order(id=1))  # type: ignore[call-arg]
    await order_created(Report(1), ctx)  # type: ignore[arg-type]


def in_handlers(ctx: Context, client: Client) -> None:
    assert_type(order_created.publish(ctx, Order(id=1)), MessageHandle[int])
    assert_type(order_created.publish(client, Order(id=1)), MessageHandle[int])
    order_created.publish(ctx, Report(1))  # type: ignore[call-overload]


async def in_async_handlers(ctx: AsyncContext, client: AsyncClient) -> None:
    assert_type(await order_created.publish(ctx, Order(id=1), delay=5), AsyncMessageHandle[int])
    assert_type(await order_created.publish(client, Order(id=1)), AsyncMessageHandle[int])
    order_created.publish(ctx, Order(id=1))  # type: ignore[unused-coroutine]


order_created.every(
    "0 7 * * *", Order(id=1), time_zone="Europe/Berlin", name="orders", missed="skip", while_paused="skip"
)
nothing.every("30 seconds")
order_created.every("0 7 * * *", Report(1))  # type: ignore[arg-type]
order_created.every("0 7 * * *", timezone="UTC")  # type: ignore[call-arg]
order_created.every("0 7 * * *", missed="sometimes")  # type: ignore[arg-type]
order_created.every("0 7 * * *", while_paused="wait")  # type: ignore[arg-type]


@topic("a", max_atempts=5)  # type: ignore[call-overload, untyped-decorator]
def misspelt(payload: Order) -> None: ...


@topic("b", backoff="quadratic")  # type: ignore[call-overload, untyped-decorator]
def unknown_kind(payload: Order) -> None: ...


@topic("c", batch_size=5)  # type: ignore[arg-type]
def one_of_a_batch(payload: Order) -> None: ...
