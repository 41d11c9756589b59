"""The lifespan: how it starts and ends, and what happens if either fails or hangs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from structlog.testing import LogCapture

from pgrouse.errors import LifespanFailed
from pgrouse.handlers.declaration.lifespan import Lifespan

LONG_S = 60.0


class Recorder:
    """Lifespans that record what happens to them."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.threads: set[int] = set()
        self.tasks: set[Any] = set()

    @asynccontextmanager
    async def on_the_loop(self) -> AsyncIterator[str]:
        self.tasks.add(asyncio.current_task())
        self.steps.append("start")
        try:
            yield "resources"
        finally:
            self.tasks.add(asyncio.current_task())
            self.steps.append("end")

    @contextmanager
    def blocking(self) -> Iterator[str]:
        self.threads.add(threading.get_ident())
        self.steps.append("start")
        try:
            yield "resources"
        finally:
            self.threads.add(threading.get_ident())
            self.steps.append("end")


@asynccontextmanager
async def raising_at_end() -> AsyncIterator[None]:
    yield
    raise ConnectionError("redis is gone")


@asynccontextmanager
async def hanging_at_start() -> AsyncIterator[None]:
    await asyncio.Event().wait()
    yield


@contextmanager
def blocking_at_start() -> Iterator[None]:
    threading.Event().wait()
    yield


async def test_an_async_lifespan_is_entered_and_left_in_one_task() -> None:
    recorder = Recorder()
    lifespan = Lifespan("shop:lifespan", recorder.on_the_loop)

    resources = await lifespan.start(LONG_S)
    assert (resources, recorder.steps) == ("resources", ["start"])
    await lifespan.end(LONG_S)

    assert recorder.steps == ["start", "end"]
    assert len(recorder.tasks) == 1


async def test_a_blocking_lifespan_is_entered_and_left_in_one_thread_of_its_own() -> None:
    recorder = Recorder()
    lifespan = Lifespan("shop:lifespan", recorder.blocking)

    resources = await lifespan.start(LONG_S)
    await lifespan.end(LONG_S)

    assert (resources, recorder.steps) == ("resources", ["start", "end"])
    assert len(recorder.threads) == 1
    assert threading.get_ident() not in recorder.threads


@pytest.mark.parametrize("function", [hanging_at_start, blocking_at_start])
async def test_a_start_that_hangs_is_given_up(function: Callable[[], Any]) -> None:
    with pytest.raises(LifespanFailed, match=r"did not start within 0\.05 s"):
        await Lifespan("shop:lifespan", function).start(0.05)


async def test_an_end_that_fails_is_logged(logged: LogCapture) -> None:
    lifespan = Lifespan("shop:lifespan", raising_at_end)
    await lifespan.start(LONG_S)

    await lifespan.end(LONG_S)

    (event,) = logged.entries
    assert (event["event"], str(event["exc_info"])) == ("lifespan.failed", "redis is gone")


async def test_a_start_that_blocks_the_event_loop_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = threading.Event()

    @asynccontextmanager
    async def busy() -> AsyncIterator[None]:
        stuck.wait(LONG_S)  # the loop cannot time it out
        yield

    monkeypatch.setattr("pgrouse.handlers.declaration.lifespan.STUCK_S", 0.01)
    began = time.monotonic()
    await Lifespan("shop:lifespan", busy, on_stuck=stuck.set).start(0.05)

    assert stuck.is_set()
    assert time.monotonic() - began < LONG_S
