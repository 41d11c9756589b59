"""Handlers with effects in the database: each inserts its message's id into the table `effect`."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import psycopg
from psycopg.pq import TransactionStatus
from work import is_open, journalled, until, until_in_thread, write

INSERT = "INSERT INTO effect (message_id) VALUES (%s)"
# Its COMMIT is refused.
DEFERRED = """
    CREATE TEMP TABLE once (n int UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP; INSERT INTO once VALUES (1), (1)
"""


async def store(payload, ctx):
    async with ctx.transaction() as conn:
        await conn.execute(INSERT, [ctx.id])
        ctx.output = {"stored": ctx.id}
    write("done", ctx)


def store_in_thread(payload, ctx):
    with ctx.transaction() as conn:
        conn.execute(INSERT, [ctx.id])
        ctx.output = {"stored": ctx.id}
    write("done", ctx)


async def store_in_pipeline(payload, ctx):
    """Several statements in one round trip."""
    async with ctx.transaction() as conn, conn.pipeline():
        for _ in range(3):
            await conn.execute(INSERT, [ctx.id])
    write("done", ctx)


async def store_and_raise(payload, ctx):
    async with ctx.transaction() as conn:
        await conn.execute(INSERT, [ctx.id])
        raise ValueError("changed my mind")


def store_in_thread_and_raise(payload, ctx):
    with ctx.transaction() as conn:
        conn.execute(INSERT, [ctx.id])
        raise ValueError("changed my mind")


async def store_slowly(payload, ctx):
    """Holds the transaction open until the gate opens."""
    with journalled(ctx):
        async with ctx.transaction() as conn:
            await conn.execute(INSERT, [ctx.id])
            write("stored", ctx)
            await until(lambda: is_open("gate"))


def store_slowly_in_thread(payload, ctx):
    with journalled(ctx), ctx.transaction() as conn:
        conn.execute(INSERT, [ctx.id])
        write("stored", ctx)
        until_in_thread(lambda: is_open("gate"))


async def die_after(payload, ctx):
    """Kills its own process as soon as the transaction has ended."""
    async with ctx.transaction() as conn:
        await conn.execute(INSERT, [ctx.id])
        write("stored", ctx)
    os.kill(os.getpid(), signal.SIGKILL)


async def go_on(payload, ctx):
    """Continues after its transaction, until the gate opens."""
    with journalled(ctx):
        async with ctx.transaction() as conn:
            await conn.execute(INSERT, [ctx.id])
        write("done", ctx)
        await until(lambda: is_open("gate"))


async def raise_after(payload, ctx):
    async with ctx.transaction() as conn:
        await conn.execute(INSERT, [ctx.id])
    raise ValueError("too late")


async def store_twice(payload, ctx):
    async with ctx.transaction() as conn:
        await conn.execute(INSERT, [ctx.id])
    async with ctx.transaction() as conn:
        await conn.execute(INSERT, [ctx.id])


def store_from_a_child(payload, ctx):
    with ctx.transaction() as conn:
        conn.execute(INSERT, [ctx.id])


async def insert_when_open(payload, ctx):
    """Waits for its gate before it asks for a connection."""
    write("start", ctx)
    await until(lambda: is_open("gate"))
    async with ctx.transaction() as conn:
        await conn.execute("SELECT 1")


async def learn_late(payload, ctx):
    """Commits, and learns of it when the gate opens."""
    with journalled(ctx):
        async with ctx.transaction() as conn:
            await conn.execute(INSERT, [ctx.id])
            answered = conn.wait

            async def wait(*arguments):
                answer = await answered(*arguments)
                if conn.info.transaction_status == TransactionStatus.IDLE:
                    write("committed", ctx)
                    await until(lambda: is_open("gate"))
                return answer

            conn.wait = wait
        del conn.wait


def learn_late_in_thread(payload, ctx):
    """The same in a thread."""
    with journalled(ctx):
        with ctx.transaction() as conn:
            conn.execute(INSERT, [ctx.id])
            answered = conn.wait

            def wait(*arguments):
                answer = answered(*arguments)
                if conn.info.transaction_status == TransactionStatus.IDLE:
                    write("committed", ctx)
                    until_in_thread(lambda: is_open("gate"))
                return answer

            conn.wait = wait
        del conn.wait


async def refused(payload, ctx):
    """The server refuses the commit; the handler goes on."""
    with journalled(ctx):
        with suppress(psycopg.errors.UniqueViolation):
            async with ctx.transaction() as conn:
                await conn.execute(DEFERRED)
        write("refused", ctx)
        await until(lambda: is_open("gate"))


def refused_in_thread(payload, ctx):
    """The same in a thread."""
    with suppress(psycopg.errors.UniqueViolation), ctx.transaction() as conn:
        conn.execute(DEFERRED)
    write("refused", ctx)
    until_in_thread(lambda: is_open("gate"))
