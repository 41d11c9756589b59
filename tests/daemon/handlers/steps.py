"""Handlers with steps."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass

from work import is_open, until_in_thread, write

import pgrouse
from pgrouse import Retry

INSERT = "INSERT INTO effect (message_id) VALUES (%s)"


@dataclass
class Label:
    number: int
    tags: tuple[str, ...]


def fail_if(fails):
    if fails:
        raise ValueError("undone")


def count(ctx, name):
    """Record that a step runs."""
    write("ran", ctx, step=name)
    return {"by": ctx.attempt}


async def count_async(ctx, name):
    return count(ctx, name)


async def die_between(payload, ctx):
    """Kills its own process between its first and its second step, in the first attempt."""
    first = await ctx.step("first", count_async, ctx, "first")
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    second = await ctx.step("second", count, ctx, name="second")
    return [first, second]


def retry_between(payload, ctx):
    first = ctx.step("first", count, ctx, "first")
    if ctx.attempt == 1:
        raise Retry
    return [first, ctx.step("second", count, ctx, "second")]


async def fail_once(payload, ctx):
    """Fails finally after its step, unless it was redriven."""
    kept = await ctx.step("first", count, ctx, "first")
    if payload == "die":
        raise ValueError("boom")
    return kept


async def _insert(conn, ctx):
    await conn.execute(INSERT, [ctx.id])
    write("ran", ctx, step="insert")


def _insert_in_thread(conn, ctx):
    conn.execute(INSERT, [ctx.id])
    write("ran", ctx, step="insert")


async def insert_once(payload, ctx):
    """Its step writes in the transaction that stores it; the first time it fails inside, the second time after it."""

    async def insert(conn):
        await _insert(conn, ctx)
        if ctx.attempt == 1:
            raise Retry

    await ctx.step("insert", insert, transaction=True)
    if ctx.attempt == 2:
        raise Retry


def insert_once_in_thread(payload, ctx):
    def insert(conn):
        _insert_in_thread(conn, ctx)
        if ctx.attempt == 1:
            raise Retry

    ctx.step("insert", insert, transaction=True)
    if ctx.attempt == 2:
        raise Retry


async def roll_back(payload, ctx):
    """A step inside a transaction that is rolled back runs again; one before it does not."""
    await ctx.step("before", count, ctx, "before")
    for fails in (True, False):
        try:
            async with ctx.transaction() as conn:
                await ctx.step("inside", count, ctx, "inside")
                await ctx.step("insert", _insert, ctx, transaction=True)
                assert conn is ctx.connection
                fail_if(fails)
        except ValueError:
            write("undone", ctx)
    await ctx.step("after", count, ctx, "after")


def buy_label(number, *, tag) -> Label:
    return {"number": number, "tags": [tag]}


async def buy_label_async(number) -> Label | None:
    return Label(number, ("a",))


def buy_later(number) -> Late:  # noqa: F821 - as a name that only type checkers import
    raise AssertionError


async def typed(payload, ctx):
    """A stored result has its type even the first time; without a type it is what JSON has."""
    label = [
        await ctx.step("label", lambda: Label(7, ("a",)), returns=Label),
        await ctx.step("of a class", Label, 7, ("a",)),
        await ctx.step("annotated", buy_label, 7, tag="a"),
        await ctx.step("async", buy_label_async, 7),
    ]
    plain = await ctx.step("plain", lambda: Label(7, ("a",)))
    many = await ctx.step("many", lambda: {3, 1}, returns=list[int])
    write("typed", ctx, said=[[*map(repr, label)], plain, sorted(many)])
    if ctx.attempt == 1:
        raise Retry


async def kept_by_another(conn, message_id):
    """As if a released attempt had just committed its step."""
    await conn.execute("INSERT INTO messages.step VALUES (%s, 'f', '1', 1, now(), 0)", [message_id])


async def refused(payload, ctx):
    """Each misuse, and its error."""
    cases = {
        "no json": lambda: ctx.step("a", object),
        "large": lambda: ctx.step("b", lambda: "x" * 1_100_000),
        "wider as jsonb": lambda: ctx.step("c", lambda: [1e300] * 9_000),
        "another type": lambda: ctx.step("d", lambda: "x", returns=int),
        "no type": lambda: ctx.step("g", buy_later, 7),
        "name": lambda: ctx.step("", count),
        "twice": lambda: ctx.step("e", lambda: 1),
        "another attempt": lambda: ctx.step("f", kept_by_another, ctx.id, transaction=True),
    }
    await ctx.step("e", lambda: 1)
    for case, ask in cases.items():
        try:
            await ask()
        except pgrouse.InvalidStep as error:
            write("refused", ctx, case=case, said=str(error))
    await ctx.step("a", lambda: 1)


def awaits_in_thread(payload, ctx):
    ctx.step("a", count_async, ctx, "a")


async def lose(payload, ctx):
    """Its lock is lost when the step has run."""

    async def cancelled_meanwhile():
        write("running", ctx)
        async with await _connect() as conn:
            await conn.execute("UPDATE messages.message SET claim_id = claim_id + 1 WHERE id = %s", [ctx.id])

    try:
        await ctx.step("a", cancelled_meanwhile)
    except pgrouse.LockLost as error:
        write("lost", ctx, said=str(error))


def buy_late(payload, ctx):
    """Runs a step when its gate is open; before that another step, if its payload is true."""
    if payload:
        ctx.step("first", count, ctx, "first")
    write("start", ctx)
    until_in_thread(lambda: is_open("gate"))
    try:
        ctx.step("buy", count, ctx, "buy")
    except pgrouse.LockLost as error:
        write("lost", ctx, said=str(error))
    else:
        write("bought", ctx)


async def _connect():
    import psycopg  # noqa: PLC0415

    return await psycopg.AsyncConnection.connect(os.environ["RUNS"], autocommit=True)


def in_a_child(payload, ctx):
    ctx.step("a", count, ctx, "a")


WAIT_S = 0.2


async def calls_in_step(payload, ctx):
    """Everything that needs a connection, in the function of a step that holds one."""

    async def inner(number):
        return number

    async def writing(conn, number):
        assert conn is ctx.connection
        await conn.execute(INSERT, [ctx.id])
        return number

    async def work(conn):
        await asyncio.sleep(WAIT_S)
        await conn.execute(INSERT, [ctx.id])
        await ctx.heartbeat(60)
        ctx.progress(1)
        published = await asyncio.gather(*[asyncio.create_task(ctx.publish("follow", nth)) for nth in range(3)])
        done = await asyncio.gather(ctx.step("a", inner, 1), ctx.step("b", writing, 2, transaction=True))
        await ctx.predecessors()
        return [len(published), *done]

    return await ctx.step("outer", work, transaction=True)


def calls_in_step_of_thread(payload, ctx):
    def writing(conn, number):
        assert conn is ctx.connection
        conn.execute(INSERT, [ctx.id])
        return number

    def work(conn):
        time.sleep(WAIT_S)
        conn.execute(INSERT, [ctx.id])
        ctx.heartbeat(60)
        published = [ctx.publish("follow", nth) for nth in range(3)]
        done = [ctx.step("a", lambda: 1), ctx.step("b", writing, 2, transaction=True)]
        ctx.predecessors()
        return [len(published), *done]

    return ctx.step("outer", work, transaction=True)


async def steps_beside_each_other(payload, ctx):
    async def work(conn, number):
        await asyncio.sleep(WAIT_S)
        await conn.execute(INSERT, [ctx.id])
        await ctx.publish("follow", number)
        return number

    return await asyncio.gather(*[ctx.step(f"s{nth}", work, nth, transaction=True) for nth in range(3)])


async def calls_in_block(payload, ctx):
    """The same in a block, with coroutines that were made before it."""
    before = ctx.publish("follow", 0), ctx.step("early", lambda: 1), ctx.predecessors()
    async with ctx.transaction() as conn:
        await asyncio.sleep(WAIT_S)
        await conn.execute(INSERT, [ctx.id])
        await asyncio.gather(*before, ctx.publish("follow", 1), ctx.publish("follow", 2))
        await ctx.heartbeat(60)
        ctx.output = [3, 1, 2]


async def batch_in_block(payloads, ctx):
    before = ctx.publish("follow", 0)
    async with ctx.transaction():
        await asyncio.sleep(WAIT_S)
        await asyncio.gather(before, ctx.publish("follow", 1), ctx.publish("follow", 2))


async def again_after_a_rollback(payload, ctx):
    """A step that is rolled back is done again, with the step inside of it; what it has published is gone."""

    async def work(conn, fails):
        count(ctx, "outer")
        await ctx.step("inner", count_async, ctx, "inner")
        await ctx.publish("follow", fails)
        fail_if(fails)
        return "done"

    try:
        await ctx.step("outer", work, True, transaction=True)
    except ValueError:
        return await ctx.step("outer", work, False, transaction=True)


async def left_behind(payload, ctx):
    """A task that a step leaves running does not write into a transaction that is over."""
    goes_on, tasks = asyncio.Event(), []

    async def later():
        await goes_on.wait()
        assert ctx.connection is None
        return await ctx.publish("follow", 1)

    async def work(conn):
        tasks.append(asyncio.create_task(later()))
        return 1

    await ctx.step("outer", work, transaction=True)
    goes_on.set()
    return [int(each) > 0 for each in await asyncio.gather(*tasks)]


async def misplaced(payload, ctx):
    """Return the errors of what cannot be done inside of a transaction."""

    async def open_block(conn):
        async with ctx.transaction():
            pass

    async def complete(conn):
        await ctx.complete(conn)

    found = [
        await failed(ctx.step("block", open_block, transaction=True)),
        await failed(ctx.step("complete", complete, transaction=True)),
    ]
    async with ctx.transaction():
        found.append(await failed(open_block(None)))
        ctx.output = found


def misplaced_in_thread(payload, ctx):
    def open_block(conn):
        with ctx.transaction():
            pass

    try:
        ctx.step("block", open_block, transaction=True)
    except RuntimeError as error:
        return [str(error)]


async def failed(awaitable):
    try:
        await awaitable
    except RuntimeError as error:
        return str(error)


async def forgets_in_step(payload, ctx):
    """Its steps await what is made in them only in the second attempt."""

    async def work(*conn):
        count(ctx, "outer")
        made = ctx.publish("follow", 1), ctx.step("inner", count_async, ctx, "inner")
        if ctx.attempt > 1:
            await asyncio.gather(*made)
        if payload["keeps"]:
            kept.append(made)
        return "done"

    kept = []
    try:
        return await ctx.step("outer", work, transaction=payload["transaction"])
    except RuntimeError as error:
        write("refused", ctx, said=str(error))
        raise


async def makes_before_and_beside(payload, ctx):
    """A task that was made outside of a step, or in another step, may be awaited when the step is over."""
    made, done = asyncio.Event(), asyncio.Event()

    async def slow():
        publishing = ctx.publish("follow", 1)
        made.set()
        await done.wait()
        await publishing

    async def fast():
        await made.wait()

    async def beside():
        await ctx.step("fast", fast)
        done.set()

    before = ctx.publish("follow", 2), ctx.step("later", lambda: 3)
    await asyncio.gather(ctx.step("slow", slow), beside())
    return (await asyncio.gather(*before))[1]


LEFT = []


async def leave_calls(ctx, over, fails):
    """Leave a step and a publish in tasks, as the last thing in a transaction.

    If that fails the step waits for its end.
    """

    async def slow(conn):
        with suppress(TimeoutError):
            # Behind the end of the transaction, if that does not wait.
            await asyncio.wait_for(over.wait(), None if fails else 0.5)
        await conn.execute(INSERT, [ctx.id])
        await ctx.publish("follow", 1)

    step = asyncio.create_task(ctx.step("slow", slow, transaction=True))
    await asyncio.sleep(0)
    LEFT.extend([step, asyncio.create_task(ctx.publish("follow", 2))])


async def left_in_block(fails, ctx):
    over = asyncio.Event()
    try:
        async with ctx.transaction():
            await leave_calls(ctx, over, fails)
            fail_if(fails)
    finally:
        over.set()


async def left_in_step(fails, ctx):
    over = asyncio.Event()

    async def work(conn):
        await leave_calls(ctx, over, fails)
        fail_if(fails)

    try:
        await ctx.step("outer", work, transaction=True)
    finally:
        over.set()
        await asyncio.wait(LEFT)


async def left_in_batch(payloads, ctx):
    async with ctx.transaction():
        LEFT.append(asyncio.create_task(ctx.publish("follow", 1)))
        fail_if(payloads[0])


async def fails_in_task(payload, ctx):
    async with ctx.transaction():
        LEFT.append(asyncio.create_task(ctx.publish("follow", 1, priority="high")))
