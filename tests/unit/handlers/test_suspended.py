"""A coroutine that is awaited from its second step on: everything reaches it that reaches an awaited one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from pgrouse.handlers.suspended import Suspended


def first_step(coroutine: Coroutine[Any, Any, Any]) -> Suspended:
    return Suspended(coroutine, coroutine.send(None), 0)


async def test_it_returns_what_the_coroutine_returns_after_any_number_of_waits() -> None:
    event = asyncio.Event()

    async def wait() -> str:
        await asyncio.sleep(0)
        await event.wait()
        await asyncio.sleep(0)
        return "done"

    asyncio.get_running_loop().call_soon(event.set)

    assert await first_step(wait()) == "done"


async def test_the_result_and_the_exception_of_what_it_waits_for_reach_the_coroutine() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait() -> str:
        try:
            await future
        except OSError as error:
            return str(error)
        return "no error"

    suspended = first_step(wait())
    future.set_exception(OSError("broken"))

    assert await suspended == "broken"


async def test_an_exception_of_the_coroutine_reaches_the_caller() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        await first_step(fail())


@pytest.mark.parametrize("waits", [1, 3])
async def test_a_cancellation_reaches_the_coroutine_which_may_go_on(waits: int) -> None:
    reached = asyncio.Event()

    async def work() -> str:
        for _ in range(waits - 1):
            await asyncio.sleep(0)
        try:
            reached.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            return "cleaned up"
        return "never"

    async def run() -> str:
        return str(await first_step(work()))

    task = asyncio.create_task(run())
    await reached.wait()
    await asyncio.sleep(0)
    task.cancel()

    assert await task == "cleaned up"


async def test_a_timeout_in_the_first_step_ends_the_wait_of_a_later_one() -> None:
    async def wait() -> None:
        async with asyncio.timeout(0.001):
            await asyncio.sleep(0)
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await first_step(wait())


def test_what_is_closed_closes_the_coroutine() -> None:
    closed = []

    class Never:
        def __await__(self) -> Any:
            yield

    async def wait() -> None:
        try:
            await Never()
        finally:
            closed.append(True)

    awaited = first_step(wait()).__await__()
    next(awaited)
    awaited.close()

    assert closed == [True]
