"""The processes of a topic's children: every call ends, whatever happens to them, by a clock that cannot be set."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pebble import ProcessExpired, ProcessPool
from pebble.pool.process import PoolManager, TaskManager, WorkerManager

from pgrouse.worker import child_pool
from pgrouse.worker.child_pool import ChildPool

# More than a pipe holds.
LARGE = "x" * 1_000_000


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChildPool]:
    """A pool, whose processes start with its calls."""
    monkeypatch.setattr(child_pool, "CHECK_INTERVAL_S", 0.05)
    pool = ChildPool(partial(ProcessPool, max_workers=1, context=multiprocessing.get_context("spawn")))
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


def wait_for(path: Path) -> str:
    """What a call does that lasts until the test lets it end."""
    while not path.exists():
        time.sleep(0.02)
    return path.name


def paused(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, pause: Callable[[], object]) -> None:
    """Let a thread of the library pause before it does this."""
    real = getattr(owner, name)

    def paused_first(*arguments: Any) -> Any:
        pause()
        return real(*arguments)

    monkeypatch.setattr(owner, name, paused_first)


def reported(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[Any]:
    """Return a list that grows each time that a thread of the library has done this."""
    real, calls = getattr(owner, name), []

    def report(*arguments: Any) -> Any:
        try:
            return real(*arguments)
        finally:
            calls.append(arguments)

    monkeypatch.setattr(owner, name, report)
    return calls


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - a thread of the library makes it true
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("is_seen", [True, False], ids=["the other was seen to start", "none was seen to start"])
def test_a_process_that_dies_before_its_start_is_seen_ends_its_own_call_alone(
    pool: ChildPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_seen: bool
) -> None:
    """A frozen daemon, or a busy machine: it sees that the process died before it reads that the process had started a call."""
    read, unread = Event(), Event()
    read.set()
    paused(monkeypatch, PoolManager, "process_next_message", lambda: read.is_set() or (unread.set(), read.wait()))
    started = reported(monkeypatch, TaskManager, "task_start")
    expired = reported(monkeypatch, PoolManager, "handle_worker_expiration")

    async def read_nothing() -> None:
        read.clear()
        await until(unread.is_set)

    async def die_unseen() -> list[object]:
        await asyncio.gather(*(pool.call(time.sleep, 0.2, limit_s=None) for _ in range(2)))
        if not is_seen:
            await read_nothing()
        other = asyncio.ensure_future(pool.call(wait_for, tmp_path / "end", limit_s=None))
        if is_seen:
            await until(lambda: len(started) == 3)
            await read_nothing()
        dying = asyncio.ensure_future(pool.call(os._exit, 3, limit_s=None))
        await until(lambda: expired)
        read.set()
        async with asyncio.timeout(60):
            [died] = await asyncio.gather(dying, return_exceptions=True)
            (tmp_path / "end").touch()
            return [died, await other]

    died, result = asyncio.run(die_unseen())

    assert isinstance(died, BrokenProcessPool | ProcessExpired)
    assert result == "end"


def test_a_call_whose_time_is_over_as_it_returns_does_not_end_the_next_one(
    pool: ChildPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The library has decided to kill its process, and the call returns before that."""
    kill, deciding = Event(), Event()
    paused(monkeypatch, WorkerManager, "maybe_stop_worker", lambda: (deciding.set(), kill.wait()))
    started = reported(monkeypatch, TaskManager, "task_start")

    async def return_late() -> list[object]:
        ending = asyncio.ensure_future(pool.call(wait_for, tmp_path / "first", limit_s=0.5))
        await until(deciding.is_set)
        (tmp_path / "first").touch()
        first = await ending
        following = asyncio.ensure_future(pool.call(wait_for, tmp_path / "second", limit_s=None))
        await until(lambda: len(started) == 2)
        kill.set()
        await until(lambda: len(of_the_pool()) == 1)
        (tmp_path / "second").touch()
        async with asyncio.timeout(60):
            return [first, await following]

    assert asyncio.run(return_late()) == ["first", "second"]


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
        return before | {await pool.call(os.getpid, limit_s=None)}

    assert len(asyncio.run(wait_in_vain())) == 2
