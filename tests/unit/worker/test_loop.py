"""How the loops of a worker end."""

from __future__ import annotations

import asyncio

import pytest

from pgrouse.process import loop


async def test_a_loop_whose_cancelled_statement_waits_for_the_server_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "CANCEL_STATEMENT_S", 0.01)
    begun = asyncio.Event()

    async def wait_for_answer() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            # As psycopg does, until the server confirms that the statement has ended.
            await asyncio.Event().wait()

    task = asyncio.create_task(wait_for_answer())
    await begun.wait()

    async with asyncio.timeout(30):
        await loop.end([task])

    assert task.cancelled()


async def test_what_a_loop_raises_at_its_end_is_not_raised() -> None:
    async def fail() -> None:
        raise RuntimeError("broken")

    task = asyncio.create_task(fail())
    await asyncio.wait([task])

    await loop.end([task])
