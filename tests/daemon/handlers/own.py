"""Handlers that complete their message in a transaction of their own, on every kind of connection.

Each inserts the id into the table `effect`.

The payload says on which connection, and what happens where: `before` the completion, `inside` of the transaction after
it, `after` the commit.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import psycopg
from work import is_open, until, until_in_thread, write

from pgrouse import AsyncContext, BatchContext, Context, Item, LockLost, publish

sys.path.append(str(Path(__file__).parents[3]))  # a daemon does not have the checkout on its path
from tests.drivers import callers

DSN = os.environ["RUNS"]
BLOCKING = {
    "psycopg": callers.of_psycopg,
    "psycopg cursor": callers.of_psycopg_cursor,
    "psycopg pool": callers.of_psycopg_pool,
    "sqlalchemy": callers.of_sqlalchemy,
    "sqlalchemy session": callers.of_session,
    "sqlalchemy scoped": callers.of_scoped_session,
    "django": callers.of_django,
}
ASYNC = {
    "psycopg async": callers.of_async_psycopg,
    "asyncpg": callers.of_asyncpg,
    "asyncpg pool": callers.of_asyncpg_pool,
    "sqlalchemy async psycopg": callers.of_async_sqlalchemy("psycopg"),
    "sqlalchemy async asyncpg": callers.of_async_sqlalchemy("asyncpg"),
    "sqlalchemy async session psycopg": callers.of_async_session("psycopg"),
    "sqlalchemy async session asyncpg": callers.of_async_session("asyncpg"),
}
# Connections that a handler has left open.
LEAKED = []


def insert(ctx):
    return f"INSERT INTO effect (message_id) VALUES ({ctx.id})"


def act(what, ctx):
    """Do what the payload says; only in the first attempt, so that the second one succeeds."""
    if what == "kill" and ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "kill later" and ctx.attempt == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "raise":
        raise ValueError("changed my mind")


def in_thread(payload: dict[str, str], ctx: Context):
    with BLOCKING[payload["on"]](DSN) as caller:
        caller.execute(insert(ctx))
        write("stored", ctx)
        if payload.get("before") == "wait":
            until_in_thread(lambda: is_open("gate"))
        try:
            ctx.complete(caller.conn, {"stored": ctx.id})
        except LockLost as error:
            write("lost", ctx, error=str(error))
            raise
        act(payload.get("inside"), ctx)
    act(payload.get("after"), ctx)
    write("done", ctx)


in_child = in_thread


async def on_the_loop(payload: dict[str, str], ctx: AsyncContext):
    async with ASYNC[payload["on"]](DSN) as (conn, execute):
        await execute(insert(ctx))
        write("stored", ctx)
        if payload.get("before") == "wait":
            await until(lambda: is_open("gate"))
        try:
            await ctx.complete(conn, {"stored": ctx.id})
        except LockLost as error:
            write("lost", ctx, error=str(error))
            raise
        act(payload.get("inside"), ctx)
    act(payload.get("after"), ctx)
    write("done", ctx)


async def roll_back(payload, ctx: AsyncContext):
    """Ends without an error, and without a commit."""
    async with await psycopg.AsyncConnection.connect(DSN) as conn:
        await conn.execute(insert(ctx).encode())
        await ctx.complete(conn)
        await conn.rollback()


def roll_back_to_savepoint(payload, ctx: Context):
    with psycopg.connect(DSN) as conn:
        conn.execute(insert(ctx).encode())
        with conn.transaction(force_rollback=True):
            ctx.complete(conn)


def autocommit(payload, ctx: Context):
    with psycopg.connect(DSN, autocommit=True) as conn:
        ctx.complete(conn, "at once")


def twice(payload, ctx: Context):
    with psycopg.connect(DSN) as conn:
        ctx.complete(conn, "rolled back")
        conn.rollback()
        conn.execute(insert(ctx).encode())
        ctx.complete(conn, "first")
        ctx.complete(conn, "second")


def leave_open(payload, ctx: Context):
    conn = psycopg.connect(DSN, application_name="left open")
    LEAKED.append(conn)
    if ctx.attempt == 1:
        ctx.complete(conn)


async def go_on(payload, ctx: AsyncContext):
    async with await psycopg.AsyncConnection.connect(DSN) as conn:
        await conn.execute(insert(ctx).encode())
        await ctx.complete(conn)
    write("done", ctx)
    try:
        await until(lambda: is_open("gate"))
    except asyncio.CancelledError:
        write("cancelled", ctx)
        raise
    await ctx.heartbeat(extend=1)
    write("end", ctx, lost=ctx.lost)


def overrun(payload, ctx: Context):
    """Overruns its timeout with an open transaction, and commits it later."""
    with psycopg.connect(DSN) as conn:
        conn.execute(insert(ctx).encode())
        ctx.complete(conn)
        write("stored", ctx)
        until_in_thread(lambda: is_open("gate"))
    write("done", ctx)


async def forget(payload, ctx: AsyncContext):
    async with await psycopg.AsyncConnection.connect(DSN) as conn:
        await conn.execute(insert(ctx).encode())
        ctx.complete(conn)


async def forget_step(payload, ctx: AsyncContext):
    ctx.step("one", lambda: 1)


def refusals(payload, ctx: Context):
    """Everything that does not go together with a completion of one's own."""
    found = []

    def attempt(function):
        try:
            found.append(repr(function()))
        except (RuntimeError, TypeError) as error:
            found.append(f"{type(error).__name__}: {error}")

    with psycopg.connect(DSN) as conn:
        attempt(lambda: ctx.complete("a name"))
        try:
            with ctx.transaction() as own:
                attempt(lambda: ctx.complete(own))
                [].pop()
        except IndexError:
            pass
        ctx.complete(conn)
        attempt(ctx.transaction)
        attempt(lambda: ctx.step("late", lambda: 1))
        attempt(ctx.ack)
    write("refused", ctx, found=found)


def acknowledged(payload, ctx: Context):
    ctx.ack()
    with psycopg.connect(DSN) as conn:
        ctx.complete(conn)


def completed_first(payload, ctx: Context):
    with psycopg.connect(DSN) as conn:
        ctx.complete(conn)


def with_follower(payload, ctx: Context):
    with psycopg.connect(DSN) as conn:
        publish(conn, "next", {"of": ctx.id})
        ctx.complete(conn)
        act(payload.get("inside") if ctx.attempt == 1 else None, ctx)


def without_right(payload, ctx: Context):
    with psycopg.connect(DSN, options="-c role=app") as conn:
        ctx.complete(conn)


def batch(items: list[Item[str]], ctx: BatchContext):
    """Each item says how it ends."""
    with psycopg.connect(DSN) as conn:
        for item in items:
            if item.payload == "reject":
                item.reject("bad")
                continue
            conn.execute(insert(item).encode())
            item.complete(item.payload)
        ctx.complete(conn)
        if any(item.payload == "roll back" for item in items):
            conn.rollback()
    write("batch", counts=[item.fail("too late") for item in items])
