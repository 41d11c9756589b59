"""The types of what a handler has: `./go check` reads this file, and nothing runs it.

An ignore that is not needed is an error: each of them is a mistake that is detected.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from pgrouse import (
    AsyncBatchContext,
    AsyncContext,
    BatchContext,
    Context,
    Defer,
    Failure,
    MessageResult,
    Predecessor,
    Published,
    Reject,
    Retry,
    Waiter,
    topic,
    wait_for,
)
from pgrouse.publishing.drivers.connection_types import AsyncpgConnection, DjangoConnection


@dataclass
class State:
    greeting: str


@asynccontextmanager
async def lifespan() -> AsyncGenerator[State, None]:
    yield State("hello")


@topic("greet")
async def greet(name: str, ctx: AsyncContext[State]) -> str:
    assert_type(ctx.resources, State)
    print(ctx.resources.greting)  # type: ignore[attr-defined]
    print(ctx.resources.greeting + 1)  # type: ignore[operator]
    return ctx.resources.greeting + name


@topic("greet.blocking")
def greet_blocking(name: str, ctx: Context[State]) -> str:
    assert_type(ctx.resources, State)
    return ctx.resources.greeting + name


async def timing(ctx: AsyncContext[State], call_next: Callable[[], Awaitable[Any]]) -> None:
    await call_next()
    ctx.log.info("timed", greeting=ctx.resources.greeting)


def died(failure: Failure) -> None:
    assert_type(failure.message_id, int)
    print(failure.messageid)  # type: ignore[attr-defined]


def say(ctx: Context) -> None:
    assert_type(ctx.resources, object)
    print(ctx.resources.greeting)  # type: ignore[attr-defined]


def say_for(ctx: Context[State], batch: BatchContext) -> None:
    say(ctx)
    assert_type(batch.resources, object)


async def awaited(ctx: AsyncContext, session: AsyncSession, asyncpg: AsyncpgConnection, blocking: Session) -> None:
    assert_type(await ctx.publish("t", 1, key="k"), Published)
    assert_type(await ctx.predecessors(), list[Predecessor])
    await ctx.complete(session, {"done": True})
    await ctx.complete(asyncpg)
    ctx.complete(blocking)
    async with ctx.transaction() as conn:
        assert_type(conn, psycopg.AsyncConnection[Any])
    ctx.publish("t")  # type: ignore[unused-coroutine]
    ctx.step("s", print)  # type: ignore[unused-coroutine]
    ctx.complete(session)  # type: ignore[unused-coroutine]
    ctx.complete(asyncpg)  # type: ignore[unused-coroutine]
    ctx.predecessors()  # type: ignore[unused-coroutine]
    await ctx.publish("t", priorty=1)  # type: ignore[call-arg]
    with ctx.transaction():  # type: ignore[attr-defined]
        pass


def blocking(ctx: Context, session: Session, django: DjangoConnection, engine: sqlalchemy.Engine) -> None:
    assert_type(ctx.publish("t", 1, delay="5s"), Published)
    assert_type(ctx.predecessors(), list[Predecessor])
    ctx.complete(session, 1)
    ctx.complete(django)
    with ctx.transaction() as conn:
        assert_type(conn, psycopg.Connection[Any])
    ctx.complete(engine)  # type: ignore[call-overload]
    ctx.publish("t", dealy=5)  # type: ignore[call-arg]


async def in_batches(ctx: AsyncBatchContext, blocking: BatchContext, session: AsyncSession) -> None:
    assert_type(await ctx.publish("t"), Published)
    assert_type(blocking.publish("t"), Published)
    ctx.publish("t")  # type: ignore[unused-coroutine]
    ctx.complete(session)  # type: ignore[unused-coroutine]


def outcomes() -> None:
    Retry(after=5, reason="busy")
    Retry(after="1m", state={"page": 2})
    Defer(after=timedelta(seconds=5))
    Reject("no total")
    Retry(after=[5])  # type: ignore[arg-type]
    Retry(afer=5)  # type: ignore[call-arg]
    Defer(until="tomorrow")  # type: ignore[arg-type]


def waits(conn: psycopg.Connection[object], session: Session, django: DjangoConnection, waiter: Waiter) -> None:
    assert_type(wait_for("postgresql://", 1, 5), MessageResult)
    assert_type(wait_for(conn, 1), MessageResult)
    assert_type(wait_for(session, 1, "5s"), MessageResult)
    assert_type(wait_for(django, 1, timedelta(seconds=5)), MessageResult)
    assert_type(waiter.wait_for(1, 5), MessageResult)
    wait_for(7, 1)  # type: ignore[call-overload]


async def waits_awaited(
    conn: psycopg.AsyncConnection[object], session: AsyncSession, asyncpg: AsyncpgConnection, waiter: Waiter
) -> None:
    assert_type(await wait_for(conn, 1), MessageResult)
    assert_type(await wait_for(session, 1), MessageResult)
    assert_type(await wait_for(asyncpg, 1), MessageResult)
    assert_type(await waiter.ended(1, 5), MessageResult)
    wait_for(session, 1)  # type: ignore[unused-coroutine]
    waiter.ended(1)  # type: ignore[unused-coroutine]
