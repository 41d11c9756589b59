"""Fixtures for the unit tests: messages without a database, a clock that a test sets, and tests that are coroutines."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from pgrouse.client.message import Message


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run each test that is a coroutine on its own loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


class Clock:
    """A monotonic clock that a test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def claimed() -> Callable[..., Message]:
    """`claimed("job", payload="7")` is a claimed message; each has another id."""
    numbers = count(1)
    defaults: dict[str, Any] = {
        "claim_id": 77, "channel": None, "key": None, "priority": 5, "attempt": 1, "max_attempts": 1, "payload": "null",
        "body": None,
        "headers": None, "state": None, "lock_duration_s": 30.0, "timeout_s": None, "waited_s": 0.0, "elapsed_s": 0.0,
    }  # fmt: skip
    return lambda topic="job", **fields: Message(**{"id": next(numbers), "topic": topic, **defaults, **fields})


@pytest.fixture
def logged() -> LogCapture:
    """What was logged; its `entries` are the events."""
    capture = LogCapture()
    before = structlog.get_config()
    structlog.configure(processors=[capture], cache_logger_on_first_use=False)
    yield capture
    structlog.configure(**before)
