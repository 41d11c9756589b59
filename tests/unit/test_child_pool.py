"""The processes of a topic's children: every call ends, whatever happens to them, by a clock that cannot be set."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import pytest
from pebble import ProcessPool

from pgrouse.worker import child_pool
from pgrouse.worker.child_pool import ChildPool

# More than a pipe holds.
LARGE = "x" * 1_000_000


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChildPool]:
    """A pool of two processes."""
    monkeypatch.setattr(child_pool, "CHECK_INTERVAL_S", 0.05)
    pool = ChildPool(partial(ProcessPool, max_workers=2, context=multiprocessing.get_context("spawn")))
    yield pool
    pool.close()


def of_the_pool() -> list[int]:
    return [each.pid for each in multiprocessing.active_children() if each.pid and each.name == "pebble_pool_worker"]


def send_all(which: signal.Signals) -> None:
    for pid in of_the_pool():
        os.kill(pid, which)


def test_a_call_queued_in_a_broken_pool_ends(pool: ChildPool) -> None:
    async def die_idle() -> list[object]:
        await pool.call(os.getpid, limit_s=None)
        send_all(signal.SIGSTOP)
        calls = [asyncio.ensure_future(pool.call(len, LARGE, limit_s=None)) for _ in range(4)]
        await asyncio.sleep(0)
        send_all(signal.SIGKILL)
        async with asyncio.timeout(60):
            ended = await asyncio.gather(*calls, return_exceptions=True)
            return [*ended, await pool.call(len, LARGE, limit_s=None)]

    *ended, after = asyncio.run(die_idle())

    assert [type(each) for each in ended] == [BrokenProcessPool] * 4
    assert after == len(LARGE)


def test_a_clock_set_forward_ends_no_call(pool: ChildPool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def take_half_a_second() -> None:
        await pool.call(os.getpid, limit_s=None)
        call = asyncio.ensure_future(pool.call(time.sleep, 0.5, limit_s=600))
        await asyncio.sleep(0.2)
        monkeypatch.setattr(time, "time", lambda: time.monotonic() + 1e10)
        await call

    asyncio.run(take_half_a_second())


def test_a_clock_set_back_extends_no_call(pool: ChildPool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang() -> None:
        await pool.call(os.getpid, limit_s=None)
        call = asyncio.ensure_future(pool.call(time.sleep, 3600, limit_s=0.5))
        await asyncio.sleep(0.2)
        monkeypatch.setattr(time, "time", lambda: 0.0)
        async with asyncio.timeout(20):
            await call

    began = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(hang())
    assert time.monotonic() - began < 20, "it was the pool that ended it"


def test_a_caller_that_stops_waiting_ends_the_process(pool: ChildPool) -> None:
    async def wait_in_vain() -> set[int]:
        await pool.call(os.getpid, limit_s=None)
        before = set(of_the_pool())
        call = asyncio.ensure_future(pool.call(time.sleep, 3600, limit_s=None))
        await asyncio.sleep(0.3)
        call.cancel()
        async with asyncio.timeout(60):
            while before <= set(of_the_pool()):  # noqa: ASYNC110 - it is a process that is waited for
                await asyncio.sleep(0.05)
        return before

    assert len(asyncio.run(wait_in_vain())) == 2
